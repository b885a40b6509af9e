"""Many runs from one file: the grid, where each cell runs, and what is shown meanwhile."""
