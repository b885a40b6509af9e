"""Variables that are set, and asked for up to `far` times L later: reach that can be measured.

One token sets a name to a value, one asks for a name, and the next one is the value that the name
was set to last. What a context of l tokens can answer follows from the law of the gaps alone.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import Drawn

NAMES, VALUES, FILLERS = 24, 6, 16
FILLER, VALUE, ASK, SET = 32, 48, 65, 112  # the first byte of each kind
VARIANTS = ("latest", "once")
LAWS = ("within", "log", "fixed")
NEAREST = 4  # tokens from a setting to its question, at least
BUSY = 15.5  # names that wait for their question, on average; of 24, so seldom all of them
MOST = 0.2  # questions per token
LAST, ASKED_LAST = 16, 4  # the test asks so many questions in its last tokens, which are scored


@dataclasses.dataclass(frozen=True)
class Variables(tasks.Task):
    """`latest`: a name is set again and again, so order matters; `once`: once in a document.

    Gaps of `within` are uniform up to L in training and up to `far` L in the test; of `log`
    log-uniform up to `far` L in both; of `fixed` uniform up to L in training, `far` L in the test.
    """

    variant: str
    gaps: str

    chance: ClassVar[float] = 1 / VALUES

    def __post_init__(self):
        if self.variant not in VARIANTS:
            raise ValueError(f"unknown variant {self.variant!r}; have: {', '.join(VARIANTS)}")
        if self.gaps not in LAWS:
            raise ValueError(f"unknown law of gaps {self.gaps!r}; have: {', '.join(LAWS)}")
        if self.train_length < 2 * LAST or self.far < 1:
            raise ValueError(
                f"L must be at least {2 * LAST} and far at least 1; got L = {self.train_length} "
                f"and far = {self.far}"
            )

    def length(self, training: bool) -> int:
        """With `log` gaps rows of training are cut from documents as long as those of the test."""
        return super().length(training and self.gaps != "log")

    def draw_gap(self, rng: np.random.Generator, training: bool, most: int) -> int:
        """A gap from the law, given that it is at most `most`."""
        if self.gaps == "fixed" and not training:
            return self.farthest - LAST  # from the last tokens, back to the first ones
        end = self.train_length if training and self.gaps != "log" else self.farthest
        end = min(end, most)
        if self.gaps == "log":
            return int(np.exp(rng.uniform(np.log(NEAREST), np.log(end + 1))))
        return int(rng.integers(NEAREST, end + 1))

    def share_within(self, context: float) -> float:
        """The share of the test's questions whose setting is at most `context` tokens back."""
        if self.gaps == "fixed":
            return float(context >= self.farthest - LAST)
        if context < NEAREST:
            return 0.0
        context = min(context, self.farthest)
        if self.gaps == "log":
            return float(np.log((context + 1) / NEAREST) / np.log((self.farthest + 1) / NEAREST))
        return (context + 1 - NEAREST) / (self.farthest + 1 - NEAREST)

    def ceiling(self, context: float) -> float:
        """The accuracy of a reader that knows everything within its context and guesses else."""
        known = self.share_within(context)
        return known + (1 - known) / VALUES

    def mean_gap(self, training: bool) -> float:
        if self.gaps == "fixed" and not training:
            return self.farthest - LAST
        if self.gaps == "log":
            return (self.farthest - NEAREST) / np.log(self.farthest / NEAREST)
        return ((self.train_length / 2 if training else self.farthest) + NEAREST) / 2

    def document(self, rng: np.random.Generator, training: bool, number: int) -> Drawn:
        length = self.length(training)
        gaps = np.zeros(length, np.int32)
        text = rng.integers(FILLER, FILLER + FILLERS, length)
        answers = np.zeros(length, bool)
        free = np.ones(length, bool)
        waiting = []  # (place of the setting, place of the question)
        for asked in self._questions(rng, length, training):
            if not free[asked : asked + 2].all():
                continue
            setting = self._setting(rng, asked, free, training)
            if setting is not None:
                free[[setting, asked, asked + 1]] = False
                waiting.append((setting, asked))
        open_until = np.full(NAMES, -1)  # the question that a name waits for
        for setting, asked in sorted(waiting):
            names = np.flatnonzero(open_until < setting)
            if not len(names):
                continue  # what was to be set stays filler, and is not asked for
            name = rng.choice(names)
            open_until[name] = length if self.variant == "once" else asked
            value = rng.integers(VALUES)
            text[setting] = SET + VALUES * name + value
            text[asked], text[asked + 1] = ASK + name, VALUE + value
            answers[asked + 1] = True
            gaps[asked + 1] = asked - setting
        return Drawn(text.astype(np.uint8), answers, gaps)

    def _questions(self, rng, length: int, training: bool) -> np.ndarray:
        """Places to ask at, in random order; of `once` fewer than there are names."""
        last = np.zeros(0, np.int64)
        busy = BUSY
        if not training:
            last = length - 1 - rng.choice(np.arange(1, LAST), ASKED_LAST, replace=False)
            busy -= ASKED_LAST
        rate = min(MOST, busy / self.mean_gap(training))
        places = rng.permutation(np.arange(NEAREST, length - 1 - (0 if training else LAST)))
        places = np.concatenate([last, places[: int(rate * length)]])
        return places[:NAMES] if self.variant == "once" else places

    def _setting(self, rng, asked: int, free: np.ndarray, training: bool) -> int | None:
        """A free place whose distance follows the law; near by where that one is taken."""
        gap = self.draw_gap(rng, training, asked)
        if gap > asked:
            return None
        if self.gaps == "fixed" and not training:
            return asked - gap if free[asked - gap] else None
        for step in range(8):
            for near in (gap - step, gap + step):
                if NEAREST <= near <= asked and free[asked - near]:
                    return asked - near
        return None


Task = Variables


def gaps(tokens: np.ndarray) -> np.ndarray:
    """For each token that is an answer the distance from its question to its setting; else 0."""
    found, last = np.zeros(len(tokens), np.int64), np.full(NAMES, -1)
    for place, token in enumerate(tokens.tolist()):
        if token >= SET:
            last[(token - SET) // VALUES] = place
        elif ASK <= token < ASK + NAMES and last[token - ASK] >= 0 and place + 1 < len(tokens):
            found[place + 1] = place - last[token - ASK]
    return found


def solve(tokens: np.ndarray) -> np.ndarray:
    """The value after each question, for one that has read these tokens; -1 where none was set."""
    answers, last = np.full(len(tokens), -1), np.full(NAMES, -1)
    for place, token in enumerate(tokens.tolist()):
        if token >= SET:
            name, value = divmod(token - SET, VALUES)
            last[name] = value
        elif ASK <= token < ASK + NAMES and place + 1 < len(tokens):
            value = last[token - ASK]
            answers[place + 1] = VALUE + value if value >= 0 else -1
    return answers
