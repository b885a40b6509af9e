"""Ordinary text with sentences that set a name to a value, once or again, and ask for the last.

Each window ends with the sentence of the last setting once more, and its value is scored. Only
order distinguishes that value from older ones. No training is needed, but a tokenizer of English.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.config.schema import Evaluation
from posenc_jax.data import tasks
from posenc_jax.display import Line, Panels
from posenc_jax.evaluation.cells import Cell, label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.protocols._questions import OF_SETTINGS, SEPARATION
from posenc_jax.evaluation.statistics import wilson
from posenc_jax.evaluation.windows import Reading, Text, changed, plan_of
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.terminal import counted

SENTENCE = " The key of {} is {}."
NAMES = (
    "Alice Tom Mary Peter Anna Jack Rose Henry Emma Paul Lucy David Jane Robert Ruth Simon George "
    "Helen James Laura"
).split()
VALUES = (
    "dog cat horse bird fish cow pig sheep lion tiger bear wolf fox mouse rabbit snake frog duck "
    "goat deer monkey whale"
).split()
OLDER = (0, 1, 3)  # older settings
BACK = 128  # tokens from the question to the last setting
NEAREST, STEP = 8, 4  # the smallest separation of two settings, and the ratio of two separations
QUESTIONS = 32  # for each number of older settings and separation, at least
GUESS = dict(color="black", linestyle=":", marker="", linewidth=1)


class Case(NamedTuple):
    """Settings of the name in a window."""

    older: int  # before the last one
    separation: int  # tokens from each to the next; 0: only one

    @property
    def part(self) -> str:
        return f"{self.older}-{self.separation}" if self.older else "0"

    @property
    def back(self) -> np.ndarray:  # [1 + older], tokens from the question, the last setting first
        return BACK + self.separation * np.arange(self.older + 1)


class Words(NamedTuple):
    """The sentence in tokens, with the names and values that are one token each."""

    sentence: np.ndarray  # [S]
    name_at: int  # in the sentence
    value_at: int
    names: np.ndarray  # [names]
    values: np.ndarray  # [values]
    bytes: np.ndarray  # [values], of text


class Planted(Protocol):
    title = "the last value of a name that sentences in the text set once or again"
    columns = OF_SETTINGS | {"separation": SEPARATION}
    order = 9
    value = "accuracy"
    by_part = True

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        if min(lengths) < 2 * BACK:
            raise ConfigError(
                f"{self.name} needs lengths of {2 * BACK} tokens or more: its last setting lies "
                f"{BACK} before the end; got {list(lengths)}"
            )

    def text(self, text: Text, subject: Any, lengths: Sequence[int], config: Evaluation) -> Text:
        """The text, with the words to plant in it."""
        words = words_of(subject.tokenizer)
        if words is None:
            raise ConfigError(
                f"{self.name} needs names and values that are one token each, and the tokenizer "
                f"{subject.tokenizer.name} has too few: evaluate a run with one of English words"
            )
        return dataclasses.replace(text, of_protocol=words)

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Readings by older settings and separation: `0`, `1-8`, `3-512`; all ask for the same."""
        words: Words = text.of_protocol
        readings = []
        for case in cases(length, len(words.sentence)):
            inner = planted(text, length, case)
            offsets = np.zeros((len(inner.starts), 1), np.int64)
            reading = plan_of(inner, length, offsets, length - 1)
            facts = {
                "chance": 1 / len(words.values),
                "ceiling": 1.0,
                "orderless": 1 / (case.older + 1),
                "older": case.older,
                "separation": str(case.separation) if case.older else None,
            }
            readings.append(dataclasses.replace(reading, part=case.part, facts=facts))
        return readings

    def wanted(self, span: int | None) -> int:
        return QUESTIONS

    def warning(self, windows: int, span: int | None) -> str | None:
        if windows >= QUESTIONS:
            return None
        return (
            f"{self.name} asks {windows} questions at each separation, too few for an accuracy "
            f"below {QUESTIONS}: raise windows or documents, or give more text"
        )

    def picture(self, cells: Sequence[Cell]) -> Panels | None:
        """Accuracy against separation in the longest windows of one run, a line per method and a
        panel per number of older settings."""
        cells = self.longest_of_one_run(cells)
        lines: dict[str, list[Line]] = {}
        for older in OLDER[1:]:
            here = [cell for cell in cells if cell.facts["older"] == older]
            if not here:  # of an interrupted evaluation
                continue
            names = dict.fromkeys(label(cell.facts) for cell in here)
            own = [_line(name, [c for c in here if label(c.facts) == name]) for name in names]
            ends = [own[0].x[0], own[0].x[-1]]
            own.append(Line("without order", ends, [1 / (older + 1)] * 2, GUESS))
            lines[counted(older, "older setting")] = own
        if not lines:
            return None
        return Panels(
            f"{self.name}: the last value of a name, in {cells[0].facts['length']:,} tokens",
            "tokens between two settings of the name",
            "accuracy",
            lines,
        )


def cases(length: int, size: int) -> list[Case]:
    """Settings that fit a window with sentences of `size` tokens, the fewest and nearest first."""
    found = [Case(0, 0)]
    for older in OLDER[1:]:
        separation = NEAREST
        while BACK + older * separation + size <= length:
            if separation >= size:  # sentences do not overlap
                found.append(Case(older, separation))
            separation *= STEP
    return found


def planted(text: Text, length: int, case: Case) -> Text:
    """The windows of a length with sentences in place of text; the first token stays."""
    words: Words = text.of_protocol
    windows = len(text.starts)
    answer_bytes = np.zeros(windows, np.int64)

    def with_sentences(rows: np.ndarray) -> np.ndarray:  # [W, length + 1]
        for number, row in enumerate(rows):
            rng = tasks.generator(0, number)  # the same name and values in all cases
            name, chosen = rng.choice(words.names), rng.permutation(len(words.values))
            values, answer_bytes[number] = words.values[chosen], words.bytes[chosen[0]]
            question = length - words.value_at  # its value is the last token
            write(row[question:], words, name, values[0])
            for back, value in zip(case.back, values, strict=False):
                write(row[question - back :], words, name, value)
        return rows

    inner = changed(text, length, with_sentences)
    answers = np.zeros((windows, length + 1), bool)
    answers[:, -1] = True
    bytes_of = inner.split.bytes_of
    if bytes_of is not None:
        bytes_of = np.where(answers, answer_bytes[:, None], bytes_of.reshape(answers.shape)).ravel()
    split = dataclasses.replace(inner.split, answers=answers.ravel(), bytes_of=bytes_of)
    return dataclasses.replace(inner, split=split)


def write(row: np.ndarray, words: Words, name: int, value: int) -> None:
    """Write the sentence at the beginning of a row, as far as it fits."""
    sentence = words.sentence.copy()
    sentence[[words.name_at, words.value_at]] = name, value
    row[: len(sentence)] = sentence[: len(row)]


def words_of(encoder: Any) -> Words | None:
    """The sentence in a tokenizer; None where too few names or values are one token each."""

    def encoded(name: str, value: str) -> np.ndarray:  # [2, S]
        return np.stack(encoder.measure(SENTENCE.format(name, value).encode(), "a sentence"))

    named = _alike([encoded(name, VALUES[0]) for name in NAMES])
    valued = _alike([encoded(NAMES[0], value) for value in VALUES])
    if named is None or valued is None or len(named.sentence) != len(valued.sentence):
        return None
    if len(valued.tokens) <= max(OLDER):
        return None
    return Words(valued.sentence, named.place, valued.place, named.tokens, *valued[2:])


class _Alike(NamedTuple):
    """Sentences that differ in one token."""

    sentence: np.ndarray  # [S], one of them
    place: int  # of that token
    tokens: np.ndarray  # [sentences], at that place
    bytes: np.ndarray  # [sentences], of these


def _alike(sentences: list[np.ndarray]) -> _Alike | None:
    """The sentences [2, S], tokens and their bytes, of the most frequent length; None if they
    differ in more than one token."""
    (shape, _), *_ = Counter(np.shape(each) for each in sentences).most_common(1)
    rows = np.stack([each for each in sentences if each.shape == shape]).astype(np.int64)
    tokens, widths = rows[:, 0], rows[:, 1]
    places = np.flatnonzero((tokens != tokens[0]).any(axis=0))
    if len(places) != 1:
        return None
    place = int(places[0])
    return _Alike(tokens[0], place, tokens[:, place], widths[:, place])


def _line(name: str, cells: Sequence[Cell]) -> Line:
    """Accuracy of a method by separation, with 95% intervals."""
    cells = sorted(cells, key=lambda cell: int(cell.facts["separation"]))
    counts = [(cell.right.sum(), int(cell.answers.sum())) for cell in cells]
    low, high = zip(*(wilson(*count) for count in counts), strict=True)
    x = [int(cell.facts["separation"]) for cell in cells]
    y = [right / asked for right, asked in counts]
    return Line(name, x, y, {}, (low, high), method=cells[0].facts)


protocol = Planted()
