"""Tasks that draw text with answers. The file names are the registry. Nothing here imports jax.

A file holds a frozen dataclass that derives from `Task` or, where the answer lies a known number of
tokens back, from `Probe`, called `Task` there by assignment. Its fields are its options in `data`.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from posenc_jax import registry
from posenc_jax.fields import between, default, fields, whole

registry.keep_names(__name__)

DEFAULT = "copy"  # of data.task
TESTS = 640  # documents to test on
CHOICES = 256  # documents to choose rates on
FILLERS = range(32, 48)  # bytes that stand for nothing
LAST = 16  # scored tokens at the end of a test document, with at least one question
TRIES = 30  # attempts to find free places for a question


class Drawn(NamedTuple):
    """A document."""

    text: np.ndarray  # [N], uint8
    answers: np.ndarray  # [N], bool: which bytes are answers
    gaps: np.ndarray | None = None  # [N], int32: bytes from an answer's setting to its question


@dataclasses.dataclass(frozen=True)
class Task:
    """A rule by which documents are drawn."""

    reads_code: ClassVar[bool] = False  # whether its documents are made of source code

    @property
    def text_options(self) -> tuple[str, ...]:
        """Options shown in the name of its text."""
        return ()

    def counts(self, valid: bool, choose: bool) -> Mapping[str, int]:
        """Documents of each split; of the split `any`, which a hash of its text decides."""
        raise NotImplementedError

    def length(self, training: bool) -> int:
        """Tokens of a document."""
        raise NotImplementedError

    def draw(self, split: str, count: int, seed: int) -> Iterator[Drawn]:
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """The facts that its documents depend on, besides the seed."""
        return {field.name: getattr(self, field.name) for field in fields(type(self))}


NONE = Task()


def generator(seed: int, *more: int) -> np.random.Generator:
    """A generator of its own for a seed and more numbers.

    NumPy cuts numbers into words of 32 bits, so the high word of the seed comes third.
    """
    first, *others = more
    return np.random.default_rng([seed % 2**32, first, seed >> 32, *others])


@dataclasses.dataclass(frozen=True)
class ShortText(Task):
    """Text of which a part follows from the rest within a short context."""

    documents: int = default(2_000, "number of documents", whole(1))
    document_length: int = default(2_048, "tokens of a document", whole(2))

    def counts(self, valid: bool, choose: bool) -> Mapping[str, int]:
        return {"any": self.documents}

    def length(self, training: bool) -> int:
        return self.document_length

    def draw(self, split: str, count: int, seed: int) -> Iterator[Drawn]:
        for i in range(count):
            rng, pieces, size = generator(seed, i), [], 0
            while size < self.document_length:
                pieces.append(self.piece(rng))
                size += len(pieces[-1].text)
            text = np.concatenate([piece.text for piece in pieces])
            answers = np.concatenate([piece.answers for piece in pieces])
            yield Drawn(text[: self.document_length], answers[: self.document_length])

    def piece(self, rng: np.random.Generator) -> Drawn:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(Task):
    """Documents of training, which fill a row each, and of the test, which are `far` L long."""

    train_length: int  # L
    documents: int = default(20_000, "rows of L to train on", whole(1))
    far: float = default(8.0, "how many times L back the test asks", between(1, 4096))
    valid_fraction: float = 0.1  # of the source code: tests are hidden in what is held out

    least: ClassVar[int] = 1  # tokens of L that a document needs
    chance: ClassVar[float]  # accuracy of a guess among valid answers
    version: ClassVar[int] = 1  # of the generator; a new number rebuilds cached documents

    def __post_init__(self):
        if self.train_length < self.least:
            raise ValueError(f"L must be at least {self.least}; got {self.train_length}")

    @property
    def farthest(self) -> int:
        """Longest context of the test, in tokens."""
        return round(self.far * self.train_length)

    def reach(self, training: bool) -> int:
        """Longest gap, in tokens."""
        return self.train_length if training else self.farthest

    def length(self, training: bool) -> int:
        """Tokens of a document, those of a row of L or of the longest window."""
        return self.reach(training) + 1

    def document(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of a document, and for each that is an answer its gap, at least 1; others have 0.

        A gap is the number of tokens from the setting of an answer to its question.
        """
        raise NotImplementedError

    def counts(self, valid: bool, choose: bool) -> Mapping[str, int]:
        rows = -(-self.documents * (self.train_length + 1) // self.length(training=True))
        return {"train": rows, "valid": TESTS * valid, "choose": CHOICES * choose}

    def draw(self, split: str, count: int, seed: int) -> Iterator[Drawn]:
        """Documents of `train`, `valid` (the test) or `choose`, which is drawn like training.

        The test does not depend on the seed, so that all runs answer the same questions.
        """
        stream = {"train": 1, "valid": 0, "choose": 2}[split]
        seed = 0 if split == "valid" else seed
        for i in range(count):
            text, gaps = self.document(generator(seed, i, stream), split != "valid")
            yield Drawn(text.astype(np.uint8), gaps > 0, gaps)

    def identity(self) -> dict[str, Any]:
        more = {"train_length": self.train_length, "tests": TESTS, "version": self.version}
        return super().identity() | more


def ceiling(chance: float, gaps: np.ndarray, seen: np.ndarray | int) -> float:
    """Accuracy of a reader that finds every answer within `seen` tokens and guesses others."""
    known = float(np.mean(gaps <= seen))
    return known + (1 - known) * chance


def find(name: str) -> type[Task]:
    return registry.find("task", name).Task


def make(name: str, train_length: int, *, valid_fraction: float = 0.1, **options) -> Task:
    """A task by its name, at L; `valid_fraction` is the share of source code for its tests."""
    task = find(name)
    at_length = {"train_length": train_length, "valid_fraction": valid_fraction}
    return task(**(at_length if issubclass(task, Probe) else {}), **options)


def readers_of(option: str) -> list[str]:
    """The tasks with an option of this name."""
    every = ((name, fields(find(name))) for name in registry.tasks())
    return [name for name, described in every if option in (field.name for field in described)]


def settings_of(name: str | None) -> "Callable[[np.ndarray], Settings] | None":
    """Function of a task that finds the settings of an answer; None if order does not matter."""
    return getattr(registry.find("task", name), "settings", None) if name else None


class Settings(NamedTuple):
    """Settings before a question, the last first."""

    back: np.ndarray  # [settings], distance to the question in tokens
    answer: np.ndarray  # [settings], the token that each gives as the answer


def filled(text: bytes | str, length: int) -> np.ndarray:  # [length], uint8
    """Text repeated up to a length."""
    letters = np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
    return np.resize(letters, length)


def fillers(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """A text of fillers, and its gaps."""
    return rng.integers(FILLERS.start, FILLERS.stop, length), np.zeros(length, np.int32)


def gaps_at_end(length: int, answer: int, setting: int) -> np.ndarray:  # [length]
    """Gaps of a text that ends with an answer of several tokens, whose setting begins there."""
    place = np.arange(length)
    return np.where(place >= length - answer, place - 1 - setting, 0).astype(np.int32)


def apart(rng: np.random.Generator, count: int, end: int, size: int) -> np.ndarray:  # [count]
    """Starts of non-overlapping stretches before `end`, ascending."""
    before = np.sort(rng.integers(0, end - count * size + 1, count))  # places outside the stretches
    return before + size * np.arange(count)
