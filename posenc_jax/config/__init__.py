"""The configuration: what a recipe and a command line say, checked once, typed from there on.

`load` validates; code that receives a `Training` does not validate again.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posenc_jax.config.check import load
    from posenc_jax.config.schema import Evaluation, Training

__all__ = ["Evaluation", "Training", "load"]


def __getattr__(name: str):
    """Imported when used: `parse` must be able to say that a package is missing."""
    if name == "load":
        from posenc_jax.config.check import load

        return load
    if name in ("Evaluation", "Training"):
        from posenc_jax.config import schema

        return getattr(schema, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
