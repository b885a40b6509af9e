"""The decoder. It names no encoding."""

from models.transformer import Config, Transformer, nll

__all__ = ["Config", "Transformer", "nll"]
