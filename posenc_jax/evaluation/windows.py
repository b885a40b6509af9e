"""Which tokens are read: the same targets for every encoding, extension and length."""

import hashlib
from dataclasses import dataclass

import numpy as np

from posenc_jax.data.corpus import Split
from posenc_jax.exits import DataError


@dataclass(frozen=True)
class Windows:
    """Windows of the longest length, each within one document."""

    tokens: np.ndarray  # [N, longest + 1]; inputs, and one target further
    bytes: np.ndarray  # [N, longest], of text that each target stands for
    document: np.ndarray  # [N], which document a window is of: 0, 1, ...

    @property
    def longest(self) -> int:
        return self.tokens.shape[1] - 1

    def tiled(self, length: int) -> np.ndarray:  # [N * longest / length, length + 1]
        """Every window cut into windows of `length`; each target belongs to one of them."""
        if self.longest % length:
            raise DataError(
                f"length {length} does not divide the longest one, {self.longest}; choose "
                "multiples that do, or targets would differ between lengths"
            )
        starts = np.arange(0, self.longest, length)
        index = starts[:, None] + np.arange(length + 1)
        return self.tokens[:, index].reshape(-1, length + 1)

    @property
    def token_hash(self) -> str:
        """Of all targets; two rows are comparable where it is the same."""
        targets = np.ascontiguousarray(self.tokens[:, 1:], dtype="<i4")
        return hashlib.sha256(targets.tobytes()).hexdigest()[:16]


def choose(split: Split, longest: int, *, documents: int, per_document: int) -> Windows:
    """From the first documents long enough, windows from their beginning; the rest is left out."""
    fitting = np.flatnonzero(split.lengths >= longest + 1)[:documents]
    if len(fitting) < 2:
        lengths = np.sort(split.lengths)[::-1]
        reach = int(lengths[1]) - 1 if len(lengths) > 1 else 0
        raise DataError(
            f"{len(fitting)} held-out documents have the {longest + 1} tokens that the longest "
            f"window takes; at least 2 are needed. Up to length {reach} there are 2: lower the "
            "multiples, or give longer text (data.source, data.path)"
        )
    rows, document = [], []
    for number, index in enumerate(fitting):
        first, size = int(split.starts[index]), int(split.lengths[index])
        for window in range(min(per_document, (size - 1) // longest)):
            rows.append(first + window * longest)
            document.append(number)
    index = np.array(rows)[:, None] + np.arange(longest + 1)
    widths = split.bytes_of
    return Windows(
        tokens=split.tokens[index].astype(np.int32),
        bytes=np.ones(index[:, 1:].shape, int) if widths is None else widths[index[:, 1:]],
        document=np.array(document),
    )
