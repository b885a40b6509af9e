"""Every picture of the project: house style, curves, heat maps, encodings and attention."""
