"""Models that others trained: their files, names and settings, adopted into ordinary runs."""

from posenc_jax.pretrained.adopt import load
from posenc_jax.pretrained.saving import save

__all__ = ["load", "save"]
