"""Text to tokens on disk to `batch(step)`."""
