"""Variables that are set once or more, and queried up to `far` times L later.

One token sets a name to a value, another queries a name, and the next is the last value of that
name. The accuracy possible with a context of l tokens follows from the distribution of gaps.
"""

import dataclasses
import re
from typing import ClassVar

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.tasks import LAST, TRIES, Settings
from posenc_jax.fields import between, default, one_of, whole

NAMES, VALUES = 24, 6
VALUE, ASK, SET = 48, 65, 112  # the first byte of each kind
VARIANTS = ("latest", "once", "ordered")
LAWS = ("within", "log", "octaves", "fixed")
NEAREST = 4  # smallest gap from a setting to its question, in tokens
BUSY = 15.5  # mean number of 24 names awaiting a question
MOST = 0.2  # questions per token
OLDER = "0.4,0.4,0.1,0.1"  # `ordered`: shares of questions with 0, 1, 2 and 3 older settings
ORDERED_RATE = 0.15  # `ordered`: questions per token; each has its own name
ASKED_LAST = 4  # questions among the last tokens of a test document


@dataclasses.dataclass(frozen=True)
class Variables(tasks.Probe):
    """`latest`: a name is set again and again, so order matters; `once`: once in a document.

    `ordered` queries each name once; the number of its older settings, each to another value, is
    drawn by the shares in `older`. The distance between two settings is log-uniform up to
    `separation` times L in training and `far` times that in the test. At every length only order
    distinguishes the last setting from an older one.

    Gaps: `within` is uniform up to L in training and up to `far` L in the test, `octaves`
    log-uniform over the same ranges, `log` log-uniform up to `far` L in both; `fixed` is uniform up
    to L in training and `far` L in the test.
    """

    variant: str = default(
        "latest",
        "latest (a name is set again and again), once, ordered (each name is asked for once, after "
        "a known number of settings)",
        one_of(*VARIANTS),
    )
    gaps: str = default(
        "within",
        "from a setting to its question: within (uniform, to L in training and to far L in the "
        "test), octaves (log-uniform, to the same), log (log-uniform to far L in both), fixed",
        one_of(*LAWS),
    )
    older: str | None = default(
        None,
        "of ordered: shares of questions whose name was set 0, 1, ... times before its last "
        f"setting; None: {OLDER}",
    )
    separation: float | None = default(
        None,
        "of ordered: the longest distance between two settings of a name, log-uniform, in "
        "multiples of L in training and of far L in the test; None: 1",
        between(1e-3, 1),
    )

    names: int = default(NAMES, "names that can be set; fewer are a smaller load", whole(1, NAMES))

    least: ClassVar[int] = 2 * LAST
    chance: ClassVar[float] = 1 / VALUES

    def __post_init__(self):
        if self.variant != "ordered" and (self.older, self.separation) != (None, None):
            raise ValueError(
                f"older and separation have no effect with variant={self.variant}; use "
                "variant=ordered"
            )
        self.shares()
        super().__post_init__()

    @property
    def text_options(self) -> tuple[str, ...]:
        return self.variant, self.gaps

    def length(self, training: bool) -> int:
        """Tokens of a document; with `log` gaps training rows are cut from test-length ones."""
        return super().length(training and self.gaps != "log")

    def draw_gap(self, rng: np.random.Generator, training: bool, most: int) -> int:
        """Gap drawn from the distribution, up to `most`."""
        if self.gaps == "fixed" and not training:
            return self.farthest - LAST  # from the last tokens to the first
        end = min(self.reach(training and self.gaps != "log"), most)
        if self.gaps in ("log", "octaves"):
            return _log_uniform(rng, NEAREST, end)
        return int(rng.integers(NEAREST, end + 1))

    def shares(self) -> np.ndarray:  # [older settings]
        """Shares of questions by number of older settings, normalised."""
        written = OLDER if self.older is None else self.older
        try:
            found = np.array([float(word) for word in re.split("[,/]", written)])
        except ValueError:
            found = np.array([-1.0])
        if not (len(found) <= VALUES and np.all(found >= 0) and 0 < found.sum() < np.inf):
            raise ValueError(
                f"older must be up to {VALUES} shares, of questions with 0, 1, ... older settings, "
                f"such as {OLDER!r}; got {written!r}"
            )
        return found / found.sum()

    def mean_gap(self, training: bool) -> float:
        if self.gaps == "fixed" and not training:
            return self.farthest - LAST
        if self.gaps in ("log", "octaves"):
            end = self.reach(training and self.gaps == "octaves")
            return (end - NEAREST) / np.log(end / NEAREST)
        return ((self.train_length / 2 if training else self.farthest) + NEAREST) / 2

    def document(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        if self.variant == "ordered":
            return self._ordered(rng, training)
        length = self.length(training)
        text, gaps = tasks.fillers(rng, length)
        free = np.ones(length, bool)
        waiting = []  # (place of the setting, place of the question)
        for asked in self._questions(rng, length, training):
            if not free[asked : asked + 2].all():
                continue
            setting = self._setting(rng, asked, free, training)
            if setting is not None:
                free[[setting, asked, asked + 1]] = False
                waiting.append((setting, asked))
        open_until = np.full(self.names, -1)  # place of the pending question of each name
        for setting, asked in sorted(waiting):
            names = np.flatnonzero(open_until < setting)
            if not len(names):
                continue  # the place of the setting stays filler, without a question
            name = rng.choice(names)
            open_until[name] = length if self.variant == "once" else asked
            value = rng.integers(VALUES)
            text[setting] = SET + VALUES * name + value
            text[asked], text[asked + 1] = ASK + name, VALUE + value
            gaps[asked + 1] = asked - setting
        return text, gaps

    def _ordered(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        length = self.length(training)
        text, gaps = tasks.fillers(rng, length)
        free, shares = np.ones(length, bool), self.shares()
        names = list(rng.permutation(self.names))
        places = rng.permutation(np.arange(NEAREST, length - 1 - (0 if training else LAST)))
        if not training:
            last = length - 1 - rng.choice(np.arange(1, LAST), ASKED_LAST, replace=False)
            places = np.concatenate([last, places])
        for asked in places[: 2 * int(ORDERED_RATE * length)]:  # some do not fit
            if not names or np.count_nonzero(gaps) >= ORDERED_RATE * length:
                break
            if not free[asked : asked + 2].all():
                continue
            older = int(rng.choice(len(shares), p=shares))
            settings = self._settings(rng, asked, older, free, training)
            if settings is None:
                continue
            name, values = names.pop(), rng.permutation(VALUES)[: older + 1]
            free[[*settings, asked, asked + 1]] = False
            text[settings] = SET + VALUES * name + values  # the last setting comes first
            text[asked], text[asked + 1] = ASK + name, VALUE + values[0]
            gaps[asked + 1] = asked - settings[0]
        return text, gaps

    def _settings(
        self, rng: np.random.Generator, asked: int, older: int, free: np.ndarray, training: bool
    ) -> np.ndarray | None:  # [1 + older]
        """Free places of the last setting and of older ones, last first; None if none found."""
        separation = 1.0 if self.separation is None else self.separation
        reach = round(self.reach(training) * separation)
        for _ in range(TRIES):
            gap = self.draw_gap(rng, training, asked)
            apart = [_log_uniform(rng, 1, max(1, min(reach, asked))) for _ in range(older)]
            settings = asked - np.cumsum([gap, *apart])
            if settings[-1] >= 0 and free[settings].all():
                return settings
        return None

    def _questions(self, rng, length: int, training: bool) -> np.ndarray:
        """Places of questions in random order; for `once` at most one per name."""
        last = np.zeros(0, np.int64)
        busy = BUSY * self.names / NAMES
        if not training:
            last = length - 1 - rng.choice(np.arange(1, LAST), ASKED_LAST, replace=False)
            busy -= ASKED_LAST
        rate = min(MOST, max(0.0, busy) / self.mean_gap(training))
        places = rng.permutation(np.arange(NEAREST, length - 1 - (0 if training else LAST)))
        places = np.concatenate([last, places[: int(rate * length)]])
        return places[: self.names] if self.variant == "once" else places

    def _setting(self, rng, asked: int, free: np.ndarray, training: bool) -> int | None:
        """Free place at a distance drawn from the distribution, or near it if that is taken."""
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


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


Task = Variables


def settings(tokens: np.ndarray) -> Settings:
    """Settings of the name queried at the end, where the last two tokens are query and answer."""
    name = int(tokens[-2]) - ASK
    before = tokens[:-2].astype(int) - SET
    places = np.flatnonzero((before >= 0) & (before // VALUES == name))[::-1]
    return Settings(len(tokens) - 2 - places, VALUE + before[places] % VALUES)
