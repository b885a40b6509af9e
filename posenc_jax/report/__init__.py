"""Many evaluated runs: a frame of their points, tables and figures of it, and a page."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posenc_jax.report.frames import frame
    from posenc_jax.report.pictures import figure
    from posenc_jax.report.tables import table

__all__ = ["figure", "frame", "table"]
HOMES = {"frame": "frames", "table": "tables", "figure": "pictures"}


def __getattr__(name: str):
    """Imported when used: pandas and matplotlib are slow to import."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
