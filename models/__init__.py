"""Decoders, independent of the encoding, one family per file; the configuration needs no jax."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from posenc_jax import registry

from .config import Config

if TYPE_CHECKING:
    from .base import Layer, Model
    from .cache import Cache, init_cache, rotates_once
    from .generation import generate, stream
    from .likelihoods import likelihood
    from .transformer import Transformer

registry.keep_names(__name__)

_FILES = {
    "Cache": "cache",
    "Layer": "base",
    "Model": "base",
    "Transformer": "transformer",
    "generate": "generation",
    "init_cache": "cache",
    "likelihood": "likelihoods",
    "rotates_once": "cache",
    "stream": "generation",
}
__all__ = [
    "Cache",
    "Config",
    "Layer",
    "Model",
    "Transformer",
    "family",
    "generate",
    "init_cache",
    "likelihood",
    "make",
    "rotates_once",
    "stream",
]


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
