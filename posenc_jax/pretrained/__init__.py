"""Models that others trained: their files, names and settings, adopted into ordinary runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posenc_jax.pretrained.adopt import adopt, load

__all__ = ["adopt", "load"]


def __getattr__(name: str):
    """Imported when used: programs ask whether a folder is a model before they import jax."""
    if name in __all__:
        from posenc_jax.pretrained import adopt as home

        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
