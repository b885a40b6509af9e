"""One page from many evaluated runs."""
