"""Views of a run in wandb; metrics.jsonl is the record, so a failing view does not end the run."""
