"""Local layers, which see a window or a chunk, or decay layers, alternating with global layers."""

import math
from collections.abc import Sequence

from posenc_jax.checks import flag, known, token_count
from posenc_jax.encoding import Dims, Encoding, static
from posenc_jax.layers import holds_state
from posenc_jax.schemes import nope, retention, rope

KINDS = ("local", "global", "decay")


class Hybrid(Encoding):
    """Yang et al. 2025, arXiv:2501.18795: RoPE in local layers, NoPE in global ones.

    The pattern repeats over the layers. Global layers may use RoPE with another base (Gemma 3,
    arXiv:2503.19786), and local layers chunks instead of a sliding window (Llama 4). Decay layers
    are linear attention, `retention` without rotation (MiniMax 2025, arXiv:2501.08313).
    """

    kinds: dict[str, Encoding]  # by the words of the pattern
    pattern: tuple[str, ...] = static()

    @property
    def period(self):
        return len(self.pattern)

    def kinds_of_layers(self):
        return sorted(self.kinds)

    def kind_of_layer(self, index):
        return self.pattern[index % self.period]

    @property
    def reach(self):
        return min((k.reach for k in self.kinds.values() if k.reach is not None), default=None)

    def layer(self, index):
        hybrid = super().layer(index)
        layer = hybrid.kinds[self.kind_of_layer(index)]
        if holds_state(layer):  # in which factors on queries cancel
            return layer.replace(window=layer.narrowed(self.window))
        return layer.replace(
            window=layer.narrowed(self.window),
            logn=layer.logn or self.logn,
            topk=self.topk if layer.topk is None else layer.topk,
            temperature=hybrid.temperature if layer.temperature is None else layer.temperature,
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
    fraction: float = 1.0,
    layout: str = "half",
) -> Hybrid:
    """Build the layers of a pattern; window=None is L / 4, and local or global base None is `base`.

    window=0 lets local layers see the whole row (SmolLM3). With `chunked`, the window is the chunk
    size.
    """
    words = _words(pattern)
    unused = sorted(set(words) - set(words[: dims.layers]))
    if unused:
        raise ValueError(
            f"pattern {','.join(words)!r} has no {' and no '.join(unused)} layer in a model of "
            f"{dims.layers} layers; give a shorter one, such as local,global"
        )
    kind_options = {
        "local": {"window": window, "chunked": chunked or None, "local_base": local_base},
        "global": {"global_rope": global_rope or None},
    }
    for word, options in kind_options.items():
        for name, value in options.items():
            if value is not None and word not in words:
                raise ValueError(f"{name} = {value!r} has no effect: there is no {word} layer")
    window = math.ceil(dims.train_length / 4) if window is None else window
    limit = None if window == 0 else token_count("window", window)
    if chunked and limit is None:
        raise ValueError("window must be at least 1 with chunked=True; got 0")
    rotates = flag("global_rope", global_rope)
    of_both = ("base", base, 10_000.0), ("fraction", fraction, 1), ("layout", layout, "half")
    of_all = () if "local" in words else of_both
    of_global = ("global_base", global_base, None), ("global_keep", global_keep, 1)
    for name, value, unset in (*of_global, *of_all):
        if value != unset and not rotates:
            raise ValueError(f"{name} = {value!r} has no effect without global_rope=True")
    size = {"chunk": limit} if flag("chunked", chunked) else {"window": limit}
    local_base = base if local_base is None else local_base
    global_base = base if global_base is None else global_base
    common = {"fraction": fraction, "layout": layout}
    kinds: dict[str, Encoding] = {}
    if "local" in words:
        kinds["local"] = rope.build(dims, base=local_base, **common).replace(**size)
    if "global" in words:
        rotated = {"base": global_base, "keep": global_keep} | common
        kinds["global"] = rope.build(dims, **rotated) if rotates else nope.build(dims)
    if "decay" in words:
        kinds["decay"] = retention.build(dims, rotate=False)
    return Hybrid(dims=dims, kinds=kinds, pattern=words)


def _words(pattern: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(pattern, str | Sequence):
        raise ValueError(f"pattern must be a list of local, global and decay; got {pattern!r}")
    words = pattern.split(",") if isinstance(pattern, str) else pattern
    words = tuple(str(word).strip() for word in words)
    if not words:
        raise ValueError(
            "pattern must contain at least one layer, local, global or decay; got none"
        )
    for word in words:
        known("layer of a pattern:", word, KINDS)
    return words
