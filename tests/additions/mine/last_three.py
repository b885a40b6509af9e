"""The last three targets of each longest window; written by a test."""

from dataclasses import replace

import numpy as np

from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.windows import plan_of


class LastThree(Protocol):
    title = "the last three targets"
    columns = {"scored": Column("targets scored in each window", int)}
    order = 9

    def plan(self, text, length, span):
        offsets = np.full((len(text.starts), 1), text.longest - length)
        return replace(plan_of(text, length, offsets, length - 3), facts={"scored": 3})


protocol = LastThree()
