"""Models that others trained: their files, names and settings, adopted into ordinary runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posenc_jax.pretrained.adopt import load
    from posenc_jax.pretrained.saving import save

__all__ = ["load", "save"]


def __getattr__(name: str):
    """Imported when used: programs ask whether a folder is a model before they import jax."""
    if name == "load":
        from posenc_jax.pretrained.adopt import load

        return load
    if name == "save":
        from posenc_jax.pretrained.saving import save

        return save
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
