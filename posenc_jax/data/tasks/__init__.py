"""Tasks with answers at a known distance; the file names are the registry.

Each file assigns a frozen dataclass, derived from `Task`, to the name `Task`. Its fields besides L
are options in `data`, whose defaults and rules are in `configuration.Data`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import ClassVar, NamedTuple

import numpy as np

TESTS = 640  # test documents
CHOICES = 256  # documents for tuning rates


class Drawn(NamedTuple):
    """A document."""

    text: np.ndarray  # [N], uint8
    answers: np.ndarray  # [N], bool: mask of answers
    gaps: np.ndarray  # [N], int32: bytes from a question back to its answer; 0: no answer


@dataclasses.dataclass(frozen=True)
class Task:
    """Generator of training documents of one row each, and of test documents of `far` L."""

    train_length: int  # L
    far: float

    chance: ClassVar[float]  # accuracy of a guess among valid answers
    twins: ClassVar[int] = 1  # consecutive documents that share their draws
    version: ClassVar[int] = 1  # of the generator; a new number rebuilds cached documents

    @property
    def farthest(self) -> int:
        """Longest context of the test, in tokens."""
        return round(self.far * self.train_length)

    def length(self, training: bool) -> int:
        """Tokens of a document, those of a row of L or of the longest window."""
        return (self.train_length if training else self.farthest) + 1

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        raise NotImplementedError

    def documents(self, split: str, count: int, seed: int) -> Iterator[Drawn]:
        """Documents of `train`, `valid` (the test) or `choose`, which is drawn like training.

        The test does not depend on the seed, so that all runs answer the same questions.
        """
        stream = {"train": 1, "valid": 0, "choose": 2}[split]
        seed = 0 if split == "valid" else seed
        for i in range(count):
            # NumPy splits numbers into 32-bit words, so a high word before i could collide with it.
            draw = i // self.twins
            rng = np.random.default_rng([seed % 2**32, draw, seed >> 32, stream])
            yield self.document(rng, split != "valid", i)


def ceiling(chance: float, gaps: np.ndarray, seen: np.ndarray | int) -> float:
    """Accuracy of a reader that finds every answer within `seen` tokens and guesses others."""
    known = float(np.mean(gaps <= seen))
    return known + (1 - known) * chance


def of(name: str) -> type[Task]:
    return import_module(f"{__name__}.{name}").Task


def make(name: str, train_length: int, **options) -> Task:
    return of(name)(train_length=train_length, **options)


def options(name: str) -> set[str]:
    """Fields of `data` that a task reads."""
    return {field.name for field in dataclasses.fields(of(name))} - {"train_length"}


def settings_of(name: str | None) -> "Callable[[np.ndarray], Settings] | None":
    """Function of a task that finds the settings of an answer; None if order does not matter."""
    return getattr(import_module(f"{__name__}.{name}"), "settings", None) if name else None


class Settings(NamedTuple):
    """Settings before a question, the last first."""

    back: np.ndarray  # [settings], distance to the question in tokens
    right: np.ndarray  # [settings], bool: True if it gives the answer


def filled(text: bytes | str, length: int) -> np.ndarray:  # [length], uint8
    """Text repeated up to a length."""
    letters = np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
    return np.resize(letters, length)


def apart(rng: np.random.Generator, count: int, end: int, size: int) -> np.ndarray:  # [count]
    """Starts of non-overlapping stretches before `end`, ascending."""
    before = np.sort(rng.integers(0, end - count * size + 1, count))  # places outside the stretches
    return before + size * np.arange(count)


def read_code(name: str) -> bool:
    """True if the documents of a task contain source code, some of it held out."""
    return "valid_fraction" in options(name)
