"""Measure ratios against named peers, side by side in one run: `make bench`."""
