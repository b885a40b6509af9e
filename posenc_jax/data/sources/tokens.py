"""Tokens in a folder, made by scripts/prepare_data.py, instead of a text and a tokenizer."""

import dataclasses
from pathlib import Path
from typing import Any

from posenc_jax.data.sources import Origin, exists, shortened
from posenc_jax.fields import default


def _folder(name: str, value: Any):
    if not exists(f"{value}/corpus.json"):
        raise ValueError(
            f"{name} must be a folder written by scripts/prepare_data.py --tokens_out; there is no "
            f"corpus.json in {shortened(value)!r}"
        )


@dataclasses.dataclass(frozen=True)
class Tokens(Origin):
    tokens: str = default("", "a folder of scripts/prepare_data.py --tokens_out", _folder)

    @property
    def folder(self) -> Path:
        return Path(self.tokens).expanduser()

    @property
    def description(self) -> str:
        return f"tokens:{self.tokens}"


Source = Tokens
