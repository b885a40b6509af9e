"""Sweeps: many runs from one file, with grid, jobs, launchers and live table."""
