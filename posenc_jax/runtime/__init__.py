"""The machine that a program runs on."""
