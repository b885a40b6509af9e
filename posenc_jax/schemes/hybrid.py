"""Layers that see a window or a chunk beside layers that see everything."""

import math
from collections.abc import Sequence

from posenc_jax.checks import flag, known, token_count
from posenc_jax.encoding import Dims, Encoding, static
from posenc_jax.schemes import nope, rope

KINDS = ("local", "global")


class Hybrid(Encoding):
    """Yang et al. 2025, arXiv:2501.18795: RoPE in local layers, NoPE in global ones.

    The pattern repeats over the layers. Global layers may rotate too, with a base of their own
    (Gemma 3, arXiv:2503.19786); chunks of places instead of a sliding window are those of Llama 4.
    """

    kinds: dict[str, Encoding]  # by the words of the pattern: "local" and "global"
    pattern: tuple[str, ...] = static()

    @property
    def period(self):
        return len(self.pattern)

    @property
    def receptive_field(self) -> int | None:
        """Tokens that the last layer's query depends on, itself included; None: no bound.

        Windows add up over the layers, layers * (window - 1) + 1; chunks do not.
        """
        if self.dims.layers is None:
            return None
        layers = [self.layer(index) for index in range(self.dims.layers)]
        windows = [layer.narrowed(None) for layer in layers]
        if any(window is None for window in windows):
            return None
        field = 1 + sum(window - 1 for window in windows)
        return min(field, *(layer.chunk or field for layer in layers))

    def named_parts(self):
        return self.kinds

    def with_parts(self, parts):
        return self.replace(kinds={**self.kinds, **parts})

    def kinds_of_layers(self):
        return sorted(self.kinds)

    def kind_of_layer(self, index):
        return self.pattern[index % self.period]

    @property
    def reach(self):
        return min((k.reach for k in self.kinds.values() if k.reach is not None), default=None)

    def layer(self, index):
        own = super().layer(index)
        one = own.kinds[self.kind_of_layer(index)]
        factors = [t for t in (one.temperature, own.temperature) if t is not None]
        return one.replace(
            window=one.narrowed(self.window),
            logn=one.logn or self.logn,
            temperature=math.prod(factors) if factors else None,
        )


def build(
    dims: Dims,
    *,
    pattern: str | Sequence[str] = "local,local,local,global",
    window: int | None = None,
    chunked: bool = False,
    base: float | Sequence[float] = 10_000.0,
    local_base: float | Sequence[float] | None = None,
    global_rope: bool = False,
    global_base: float | Sequence[float] | None = None,
    global_keep: float | str = 1.0,
    first_full: bool = False,
    last_full: bool = False,
    layout: str = "half",
) -> Hybrid:
    """Build the layers of a pattern; `window` None is L / 4, a base None is `base`.

    `chunked` makes the window the size of chunks. `first_full` and `last_full` make the first and
    the last layer global, whatever the pattern.
    """
    full = flag("first_full", first_full), flag("last_full", last_full)
    words = _words(pattern, dims.layers, *full)
    own = {
        "local": {"window": window, "chunked": chunked or None, "local_base": local_base},
        "global": {"global_rope": global_rope or None},
    }
    for word, options in own.items():
        for name, value in options.items():
            if value is not None and word not in words:
                raise ValueError(f"{name} = {value!r} has no effect: no layer is {word}")
    window = math.ceil(dims.train_length / 4) if window is None else window
    window = token_count("window", window)
    rotates = flag("global_rope", global_rope)
    for name, value, unset in (("global_base", global_base, None), ("global_keep", global_keep, 1)):
        if value != unset and not rotates:
            raise ValueError(f"{name} = {value!r} has no effect without global_rope=True")
    size = {"chunk": window} if flag("chunked", chunked) else {"window": window}
    near_base, far_base = (base if own is None else own for own in (local_base, global_base))
    far = nope.build(dims)
    if rotates:
        far = rope.build(dims, base=far_base, keep=global_keep, layout=layout)
    every: dict[str, Encoding] = {
        "local": rope.build(dims, base=near_base, layout=layout).replace(**size),
        "global": far,
    }
    kinds = {word: one for word, one in every.items() if word in words}
    return Hybrid(dims=dims, kinds=kinds, pattern=words)


def _words(
    pattern: str | Sequence[str], layers: int | None, first_full: bool, last_full: bool
) -> tuple[str, ...]:
    """The words of a pattern, of all layers where the first or the last is another."""
    if not isinstance(pattern, str | Sequence):
        raise ValueError(f"pattern must be words of local and global; got {pattern!r}")
    words = pattern.split(",") if isinstance(pattern, str) else pattern
    words = tuple(str(word).strip() for word in words)
    if not words:
        raise ValueError("pattern must name at least one layer, local or global; got none")
    for word in words:
        known("layer of a pattern:", word, KINDS)
    if not first_full and not last_full:
        return words
    if layers is None:
        raise ValueError(
            "first_full and last_full need the number of layers: give Dims(layers=...)"
        )
    every = [words[index % len(words)] for index in range(layers)]
    for is_full, index in ((first_full, 0), (last_full, -1)):
        every[index] = "global" if is_full else every[index]
    return tuple(every)
