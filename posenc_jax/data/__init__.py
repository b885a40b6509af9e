"""Turn text into tokens on disk and tokens into `batch(step)`."""
