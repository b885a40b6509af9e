"""Views of a run. The record is metrics.jsonl; a view may fail and the run goes on."""
