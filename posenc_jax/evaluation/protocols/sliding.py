"""Windows that slide over the longest ones and score only their new targets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.protocols import ByTokensSeen
from posenc_jax.evaluation.windows import Reading, Text, plan_of
from posenc_jax.runtime.errors import ConfigError


class Sliding(ByTokensSeen):
    title = "sliding windows, the same targets at every length"
    order = 3
    option = "stride"
    columns = {"stride": Column("targets per window of sliding", int)}

    def span(self, config: Any, trained: int, lengths: Sequence[int]) -> int:
        return config.stride or trained

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        assert span is not None
        wide = [n for n in lengths if n >= span]
        if not wide or any(n % span for n in wide):
            raise ConfigError(
                "stride must divide every length that it slides over, or targets are left out, "
                f"and must not exceed the longest; got {span} for lengths {list(lengths)}"
            )

    def plan(self, text: Text, length: int, span: int | None) -> Reading | None:
        """Windows that end every `span` targets and score their last `span` targets.

        The first window that fits into a document scores all targets up to its end, so that every
        target is scored once.
        """
        assert span is not None
        if length < span:
            return None
        before = text.starts - text.split.starts[text.document]  # [W]
        ends = span * np.arange(1, text.longest // span + 1)  # [N], from the window's start
        first = np.maximum(0, -(-(length - before) // span) - 1)  # [W], the first end that fits
        scored = np.where(np.arange(len(ends)) == first[:, None], length - ends, length - span)
        kept = np.arange(len(ends)) >= first[:, None]
        return plan_of(text, length, np.tile(ends - length, (len(before), 1)), scored, kept)


protocol = Sliding()
