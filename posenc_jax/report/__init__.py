"""The report of many evaluated runs on one page."""
