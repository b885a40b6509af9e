"""Views of a run; metrics.jsonl is the record, and a view may fail without ending the run."""
