"""Tokens in a folder, made by scripts/prepare_data.py, instead of a text and a tokenizer."""

import dataclasses
from pathlib import Path

from posenc_jax.data.sources import Origin, exists
from posenc_jax.fields import default
from posenc_jax.runtime.files import expanded


@dataclasses.dataclass(frozen=True)
class Tokens(Origin):
    tokens: str = default("", "a folder of scripts/prepare_data.py --tokens_out")

    @property
    def folder(self) -> Path:
        return expanded(self.tokens)

    @property
    def has_answers(self) -> bool:
        return (self.folder / "train.answers").exists()

    @property
    def description(self) -> str:
        return f"tokens:{self.tokens}"

    def mistakes(self) -> list[str]:
        if exists(f"{self.tokens}/corpus.json"):
            return []
        return [
            "data.tokens must be a folder written by scripts/prepare_data.py --tokens_out; there "
            f"is no corpus.json in {self.tokens!r}"
        ]


Source = Tokens
