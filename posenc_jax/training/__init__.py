"""Train a run from its configuration."""
