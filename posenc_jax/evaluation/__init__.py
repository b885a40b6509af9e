"""From a run to perplexity against length."""
