"""Runs: their folder, checkpoints and parameters, and how to load them."""
