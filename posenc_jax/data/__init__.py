"""Text as tokens on disk, and tokens as `batch(step)`."""
