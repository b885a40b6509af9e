"""The decoder. It names no encoding."""

from models.transformer import Config, Transformer

__all__ = ["Config", "Transformer"]
