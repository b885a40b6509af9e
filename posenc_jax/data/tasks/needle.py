"""Keys with numbers hidden in source code, and a question for one of them at the end."""

import dataclasses
from typing import ClassVar

import numpy as np

from posenc_jax.data import tasks
from posenc_jax.data.sources import stdlib
from posenc_jax.fields import default, whole

DIGITS = 4
# The words of the test do not occur in training.
WORDS = {
    True: "amber basil cedar delta ember fable grove haven ivory jolly karma lemon mango noble "
    "ocean pearl quilt raven sable tulip umbra vapor wheat xenon yacht zebra".split(),
    False: "acorn birch cloud dwarf eagle flint ghost hazel inlet jewel kiosk lilac maple north "
    "otter piano".split(),
}


@dataclasses.dataclass(frozen=True)
class Needle(tasks.Probe):
    """A needle is a line; the one asked for lies anywhere before the question."""

    needles: int = default(2, "lines hidden in the text", whole(1, 16))

    reads_code = True
    chance: ClassVar[float] = 1 / 10  # of each digit
    version: ClassVar[int] = 2

    def __post_init__(self):
        least = (self.needles + 1) * self._line_length
        most = len(WORDS[False])
        if self.needles > most or self.train_length < least:
            raise ValueError(
                f"needles must be at most {most}, and L at least {least} to hold them and their "
                f"question; got {self.needles} and L = {self.train_length}"
            )

    @property
    def _line_length(self) -> int:
        return len(_line("amber", "0" * DIGITS))

    def document(self, rng: np.random.Generator, training: bool) -> tuple[np.ndarray, np.ndarray]:
        length, size = self.length(training), self._line_length
        text = stdlib.stretch(rng, length, not training, self.valid_fraction)
        keys = rng.choice(WORDS[training], self.needles, replace=False)
        values = ["".join(map(str, rng.integers(0, 10, DIGITS))) for _ in keys]
        ask = length - size + 1  # the question's line ends with the text
        # The question is for the first needle.
        starts = rng.permutation(tasks.apart(rng, self.needles, ask, size))
        for start, key, value in zip(starts, keys, values, strict=True):
            text[start : start + size] = tasks.filled(_line(key, value), size)
        text[ask:] = tasks.filled(_line(keys[0], values[0])[:-1], size - 1)
        return text, tasks.gaps_at_end(length, DIGITS, starts[0])


def _line(key: str, value: str) -> str:
    return f"\n# {key} is {value}\n"


Task = Needle
