"""The decoder. It names no encoding."""

from .transformer import Config, Transformer, likelihood

__all__ = ["Config", "Transformer", "likelihood"]
