"""Pictures: house style, curves, heat maps, encodings and attention."""
