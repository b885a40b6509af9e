"""Many runs from one file: the grid, its jobs, where they run, and the live table."""
