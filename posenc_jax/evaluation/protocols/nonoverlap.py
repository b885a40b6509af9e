"""Windows that tile the longest ones, as in the tables of ALiBi and KERPLE."""

from collections.abc import Sequence

import numpy as np

from posenc_jax.evaluation.protocols import ByTokensSeen
from posenc_jax.evaluation.windows import Reading, Text, plan_of
from posenc_jax.runtime.errors import ConfigError


class NonOverlap(ByTokensSeen):
    title = "non-overlapping windows, the same targets at every length"
    order = 1

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        longest = max(lengths)
        uneven = [n for n in lengths if longest % n]
        if uneven:
            raise ConfigError(
                f"{self.name} tiles the longest windows, and length {uneven[0]} does not divide "
                f"the longest one, {longest}: choose lengths that do, or protocols without "
                f"{self.name}, such as same_token,position"
            )

    def plan(self, text: Text, length: int, span: int | None = None) -> Reading:
        """Tile every longest window with windows of `length`; all targets are scored."""
        offsets = np.arange(0, text.longest, length)
        return plan_of(text, length, np.tile(offsets, (len(text.starts), 1)), 0)


protocol = NonOverlap()
