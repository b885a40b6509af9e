"""One page about many evaluated runs: what is gathered, how it is ranked, how it is shown."""
