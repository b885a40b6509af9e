"""The decoder, independent of the encoding; its configuration loads without jax."""

from importlib import import_module
from typing import TYPE_CHECKING

from .config import Config

if TYPE_CHECKING:
    from .transformer import Transformer, likelihood

__all__ = ["Config", "Transformer", "likelihood"]


def __getattr__(name):
    if name in __all__:
        return getattr(import_module(".transformer", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
