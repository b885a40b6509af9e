"""Published values of position encodings and context extensions, and a checker of your code."""
