"""Measure this library on a GPU in ten-minute commands that resume: `make gpu`."""
