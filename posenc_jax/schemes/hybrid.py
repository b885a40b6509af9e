"""Layers that rotate and see a window, and layers without position that see everything."""

import math
from collections.abc import Sequence

from posenc_jax.checks import known, whole_number
from posenc_jax.encoding import Dims, Encoding, static
from posenc_jax.schemes import nope, rope


class Hybrid(Encoding):
    """Yang et al. 2025, arXiv:2501.18795: RoPE in local layers, NoPE in global ones.

    The pattern repeats over the layers. A model of local layers alone reaches
    layers * (window - 1) + 1 tokens back.
    """

    kinds: dict[str, Encoding]  # by the words of the pattern: "local" and "global"
    pattern: tuple[str, ...] = static()

    @property
    def period(self):
        return len(self.pattern)

    def named_parts(self):
        return self.kinds

    def with_parts(self, parts):
        return self.replace(kinds={**self.kinds, **parts})

    def kinds_of_layers(self):
        return sorted(self.kinds)

    @property
    def reach(self):
        return min((k.reach for k in self.kinds.values() if k.reach is not None), default=None)

    def layer(self, index):
        own = super().layer(index)
        one = own.kinds[self.pattern[index % self.period]]
        return one.replace(
            window=one.narrowed(self.window),
            logn=one.logn or self.logn,
        )


def build(
    dims: Dims,
    *,
    pattern: str | Sequence[str] = "local,local,local,global",
    window: int | None = None,
    base: float | Sequence[float] = 10_000.0,
) -> Hybrid:
    """Build the layers of a pattern; `window` None is L / 4."""
    words = pattern.split(",") if isinstance(pattern, str) else pattern
    words = tuple(word.strip() for word in words)
    if not words:
        raise ValueError("pattern must name at least one layer, local or global; got none")
    for word in words:
        known("layer of a pattern:", word, ("local", "global"))
    window = math.ceil(dims.train_length / 4) if window is None else window
    window = whole_number("window", window, at_least=1)
    kinds = {
        "local": rope.build(dims, base=base).replace(window=window),
        "global": nope.build(dims),
    }
    return Hybrid(dims=dims, kinds=kinds, pattern=words)
