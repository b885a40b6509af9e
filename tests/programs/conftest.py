"""Runs of the programs, which units do without."""

from running import call, whole  # noqa: F401
