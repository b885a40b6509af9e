"""Tasks whose answer stands a known number of tokens back. The file names are the registry.

A file holds a frozen dataclass that derives from `Task`, called `Task` there by assignment. Its
fields beyond L are its options in `data`; their defaults and rules stand in `configuration.Data`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import ClassVar, NamedTuple

import numpy as np

TESTS = 640  # documents to test on
CHOICES = 256  # documents to choose rates on


class Drawn(NamedTuple):
    """A document."""

    text: np.ndarray  # [N], uint8
    answers: np.ndarray  # [N], bool: which bytes are answers
    gaps: np.ndarray  # [N], int32: how many bytes before its question an answer lies; 0: none does


@dataclasses.dataclass(frozen=True)
class Task:
    """Documents of training, which fill a row each, and of the test, which are `far` L long."""

    train_length: int  # L
    far: float

    chance: ClassVar[float]  # accuracy of a reader that knows what answers look like, and no more
    twins: ClassVar[int] = 1  # documents that share their draws, one after another
    version: ClassVar[int] = 1  # of what a file draws; another number makes its documents again

    @property
    def farthest(self) -> int:
        """The longest context that the test asks for, in tokens."""
        return round(self.far * self.train_length)

    def length(self, training: bool) -> int:
        """Tokens of a document: what a row of L, or the longest window, takes."""
        return (self.train_length if training else self.farthest) + 1

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        raise NotImplementedError

    def documents(self, split: str, count: int, seed: int) -> Iterator[Drawn]:
        """Documents of `train`, `valid` (the test) or `choose`, which is drawn like training.

        The test is the same whatever the seed of a run, so that all runs answer the same questions.
        """
        stream = {"train": 1, "valid": 0, "choose": 2}[split]
        seed = 0 if split == "valid" else seed
        for i in range(count):
            # NumPy cuts numbers into words of 32 bits: a high word before i would be taken for it.
            draw = i // self.twins
            rng = np.random.default_rng([seed % 2**32, draw, seed >> 32, stream])
            yield self.document(rng, split != "valid", i)


def ceiling(chance: float, gaps: np.ndarray, seen: np.ndarray | int) -> float:
    """The accuracy of a reader that finds every answer within `seen` tokens and guesses others."""
    known = float(np.mean(gaps <= seen))
    return known + (1 - known) * chance


def of(name: str) -> type[Task]:
    return import_module(f"{__name__}.{name}").Task


def make(name: str, train_length: int, **options) -> Task:
    return of(name)(train_length=train_length, **options)


def options(name: str) -> set[str]:
    """The fields of `data` that a task reads."""
    return {field.name for field in dataclasses.fields(of(name))} - {"train_length"}


def settings_of(name: str | None) -> "Callable[[np.ndarray], Settings] | None":
    """The function of a task that finds what an answer depends on; None where order is no part."""
    return getattr(import_module(f"{__name__}.{name}"), "settings", None) if name else None


class Settings(NamedTuple):
    """What an answer depends on, before its question, the last first."""

    back: np.ndarray  # [settings], how many tokens before the question
    right: np.ndarray  # [settings], bool: whether it gives the answer


def filled(text: bytes | str, length: int) -> np.ndarray:  # [length], uint8
    """A text repeated up to a length."""
    letters = np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
    return np.resize(letters, length)


def apart(rng: np.random.Generator, count: int, end: int, size: int) -> np.ndarray:  # [count]
    """Starts of stretches before `end` that do not overlap, ascending."""
    before = np.sort(rng.integers(0, end - count * size + 1, count))  # places that no stretch takes
    return before + size * np.arange(count)


def read_code(name: str) -> bool:
    """Whether the documents of a task are made of source code, some of which is held out."""
    return "valid_fraction" in options(name)
