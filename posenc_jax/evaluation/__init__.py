"""Measure the perplexity of a run against length."""
