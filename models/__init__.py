"""Decoders, independent of the encoding, one family per file; the configuration needs no jax."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .config import Config

if TYPE_CHECKING:
    from .base import Keys, Layer, Model
    from .transformer import Transformer, likelihood

_FILES = {
    "Keys": "base",
    "Layer": "base",
    "Model": "base",
    "Transformer": "transformer",
    "likelihood": "transformer",
}
__all__ = ["Config", "Keys", "Layer", "Model", "Transformer", "family", "likelihood", "make"]


def family(config: Config) -> Any:
    """The class of a configuration's models."""
    return import_module(f".{config.family}", __name__).Model


def make(config: Config, key: Any) -> "Model":
    """A model with weights drawn from a key."""
    return family(config)(config, key)


def __getattr__(name):
    if name in _FILES:
        return getattr(import_module(f".{_FILES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
