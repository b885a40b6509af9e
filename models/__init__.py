"""The decoder. It names no encoding."""

from models.transformer import Config, Transformer, likelihood

__all__ = ["Config", "Transformer", "likelihood"]
