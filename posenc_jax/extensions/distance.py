"""Extensions that remap positions in regions of the keys, to keep distances near trained ones.

Numbers that depend on the scale are array leaves, so one compiled program serves every scale.
"""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import flag, positive, token_count
from posenc_jax.encoding import DistanceBias, Encoding, Region, Tokens, fixed, static
from posenc_jax.extensions._record import Kind, check_log_length, extension, float64
from posenc_jax.extensions.any_encoding import TEMPERATURE, WINDOW
from posenc_jax.layers import Wrapper
from posenc_jax.schemes.randomized import Randomized
from posenc_jax.schemes.rope import RoPE
from posenc_jax.schemes.ssmax import TemperedWithBias

ANY = np.iinfo(np.int32).max  # upper bound of tokens back in an unbounded region


class Remapped(Wrapper):
    """An encoding whose distances are remapped in regions of the keys."""


def _is_remapped(encoding: Encoding) -> bool:
    return isinstance(encoding, Remapped) or any(map(_is_remapped, encoding.named_parts().values()))


DISTANCE = Kind("distance", _is_remapped)
# Regions count tokens back, so random positions do not fit, nor a bias scaled by the query's index,
# which regions hide. A distance bias around RoPE would be remapped too.
MADE_FOR: dict[str, Any] = dict(
    of=RoPE, stops_at=(Randomized, DistanceBias, TemperedWithBias), acts_by="regions"
)
RELATIVE: dict[str, Any] = dict(
    of=(RoPE, DistanceBias),
    stops_at=(Randomized, TemperedWithBias),
    acts_by="regions",
    beyond_windows=True,
)


class ReRoPE(Remapped):
    """Su 2023, https://github.com/bojone/rerope: min(d, w)."""

    w: int = static()

    def regions(self, q_tokens, k_tokens):
        q, k = q_tokens.position, k_tokens.position
        far = Region(jnp.full_like(q, self.w), jnp.zeros_like(k), nearest=self.w)
        return Region(window=self.w), far


class LeakyReRoPE(Remapped):
    """Su 2023, https://github.com/bojone/rerope: d if d < w, else w + (d - w) / k."""

    k: jax.Array  # []
    w: int = static()

    def regions(self, q_tokens, k_tokens):
        q, k = q_tokens.position / self.k, k_tokens.position / self.k
        return Region(window=self.w), Region(q + (self.w - self.w / self.k), k, nearest=self.w)


class SelfExtend(Remapped):
    """Jin et al. 2024, arXiv:2401.01325: positions in groups of `group` tokens if d >= `near`.

    The distance is then i // group - j // group + near - near / group.
    """

    group: jax.Array  # [], an integer
    near: int = static()
    floor: bool = static(default=True)  # round near / group down

    def regions(self, q_tokens, k_tokens):
        # The half keeps quotients off whole numbers: XLA may multiply by a rounded 1 / group.
        q, k = (jnp.floor((side.position + 0.5) / self.group) for side in (q_tokens, k_tokens))
        share = self.near / self.group
        share = jnp.floor(share) if self.floor else share
        return Region(window=self.near), Region(q + (self.near - share), k, nearest=self.near)


class DCA(Remapped):
    """An et al. 2024, arXiv:2402.17463: the position of a key is its index in its chunk.

    Queries do the same for keys of their chunk, and take larger positions for earlier chunks.
    """

    size: int = static()  # of a chunk
    farthest: int = static()  # largest distance, and query position towards older chunks

    def regions(self, q_tokens, k_tokens):
        size = self.size
        q, k = q_tokens.position % size, k_tokens.position % size
        next_q = jnp.minimum(q + size, self.farthest)
        far_q = jnp.full_like(q, min(2 * size - 1, self.farthest))
        endless = jnp.full_like(q, ANY)
        return (
            Region(q, k, (jnp.zeros_like(q), q), window=size, chunks=(size, 0, 0)),
            Region(next_q, k, (q + 1, q + size), nearest=1, window=2 * size, chunks=(size, 1, 1)),
            Region(far_q, k, (q + size + 1, endless), nearest=size + 1, chunks=(size, 2, None)),
        )


class _FirstAndLast(Remapped):
    """The last `near` keys and the first `sinks`."""

    near: int = static()
    sinks: int = static()

    def keys_seen(self, places):
        return jnp.minimum(super().keys_seen(places), self.near + self.sinks)

    def visible_keys(self):
        return self.sinks, self.narrowed(self.near)


class LMInfinite(_FirstAndLast):
    """Han et al. 2023, arXiv:2308.16137: the last `near` keys, and the first at up to `limit`."""

    limit: int = static()

    def regions(self, q_tokens, k_tokens):
        q, k = q_tokens.position, k_tokens.position
        sinks: dict[str, Any] = dict(between=_of_first(q, self.sinks), first=self.sinks)
        clipped = max(self.near, self.limit)
        exact = Region(nearest=self.near, window=clipped, **sinks)
        at_limit = Region(jnp.full_like(q, self.limit), jnp.zeros_like(k), nearest=clipped, **sinks)
        return Region(window=self.near), *([exact] if clipped > self.near else []), at_limit


class Streaming(_FirstAndLast):
    """Xiao et al. 2023, arXiv:2309.17453: the first and the last `near` keys, as in a cache."""

    def regions(self, q_tokens, k_tokens):
        q, k = q_tokens.position, k_tokens.position
        last = jnp.minimum(q, self.sinks + self.near - 1)
        far = Region(last, k, _of_first(q, self.sinks), nearest=self.near, first=self.sinks)
        return Region(window=self.near), far


def _of_first(q: jax.Array, keys: int) -> tuple[jax.Array, jax.Array]:
    """Return the least and most tokens back of the first keys of a document."""
    return q - (keys - 1), jnp.full_like(q, ANY)


@extension(DISTANCE, scale="none", **MADE_FOR, also=(TEMPERATURE,))
def rerope(rope: RoPE, scale: float, *, w: int | None = None) -> Encoding:
    """Clip distances at w (None: L / 2) and scale queries as `logn` does."""
    check_log_length("rerope", rope)
    return _around(rope, ReRoPE, w=_half(rope, w)).replace(logn=True)


@extension(DISTANCE, scale="read", **MADE_FOR)
def leaky_rerope(
    rope: RoPE, scale: float, *, w: int | None = None, k: float | None = None
) -> Encoding:
    """Divide the part of distances beyond w by k.

    w=None is L / 2, and k=None the smallest value that keeps the length read within L.
    """
    w = _half(rope, w)
    if k is None:
        if w >= rope.train_length:
            raise ValueError(
                f"w must be below L = {rope.train_length} unless k is given; got w={w}"
            )
        k = (scale * rope.train_length - w) / (rope.train_length - w)
    if positive("k", k) < 1:
        raise ValueError(f"k must be at least 1; got {k!r}")
    return _around(rope, LeakyReRoPE, {"k": k}, w=w)


@extension(DISTANCE, scale="read", **MADE_FOR)
def self_extend(
    rope: RoPE,
    scale: float,
    *,
    window: int | None = None,
    group: int | None = None,
    floor: bool = True,
) -> Encoding:
    """Keep distances exact within a window, and group positions beyond it.

    window=None is L / 4. group=None is 1 up to L, then the smallest that keeps the length read
    within 2 L / 3, as the authors suggest. `floor` rounds window / group down as in the paper;
    their code does not.
    """
    near = _share(rope, 1, 4) if window is None else token_count("window", window)
    if group is None:
        group = _smallest_group(rope.train_length, scale, near)
    group = token_count("group", group)
    return _around(rope, SelfExtend, {"group": group}, near=near, floor=flag("floor", floor))


def _smallest_group(length: int, scale: float, near: int) -> int:
    read, room = math.ceil(scale * length - 1e-6), Fraction(2 * length, 3) - near
    if read <= length:
        return 1
    if room <= 0:
        raise ValueError(
            f"window must be below 2 L / 3, L = {length}, unless group is given; got window={near}"
        )
    return max(1, math.ceil((read - near) / room))


@extension(DISTANCE, scale="read", **MADE_FOR)
def dca(rope: RoPE, scale: float) -> Encoding:
    """Split keys into chunks of 5 L / 8, with distances up to 3 L / 4.

    Logits are multiplied by (0.05 ln s + 1)^2, where s is the length read over L.
    """
    if rope.train_length < 2:
        raise ValueError(f"dca needs a train_length of at least 2; got {rope.train_length}")
    farthest = _share(rope, 3, 4)
    rope = rope.replace(gain=fixed(float64(rope.gain) * (0.05 * math.log(scale) + 1)))
    return _around(rope, DCA, size=farthest - rope.train_length // 8, farthest=farthest)


@extension(DISTANCE, scale="none", **RELATIVE, also=(WINDOW,))
def lm_infinite(
    encoding: Encoding, scale: float, *, first: int = 10, limit: int | None = None
) -> Encoding:
    """Attend to the last L tokens, and to the first ones at distances up to `limit` (None: L)."""
    length = encoding.train_length
    limit = length if limit is None else token_count("limit", limit)
    first = token_count("first", first)
    return _around(encoding, LMInfinite, near=length, sinks=first, limit=limit)


@extension(DISTANCE, scale="none", **RELATIVE, also=(WINDOW,))
def streaming(
    encoding: Encoding, scale: float, *, first: int = 4, window: int | None = None
) -> Encoding:
    """Attend to the first tokens and the last `window` (None: L - first, for positions below L).

    The paper describes a cache; here each query sees what the cache would contain.
    """
    first = token_count("first", first)
    if window is None:
        window = encoding.train_length - first
        if window < 1:
            raise ValueError(
                f"first must be below L = {encoding.train_length} unless window is given; "
                f"got {first}"
            )
    window = token_count("window", window)
    return _around(encoding, Streaming, near=window, sinks=first)


def _share(rope: Encoding, numerator: int, denominator: int) -> int:
    return max(1, rope.train_length * numerator // denominator)


def _half(rope: Encoding, w: int | None) -> int:
    return _share(rope, 1, 2) if w is None else token_count("w", w)


def _around(encoding: Encoding, kind: type, numbers: dict | None = None, **statics) -> Encoding:
    """Wrap an encoding; numbers become leaves, with a layer axis if it is stacked."""
    shape = () if encoding.layers is None else (encoding.layers,)
    leaves = {name: fixed(np.full(shape, value)) for name, value in (numbers or {}).items()}
    return kind(
        dims=encoding.dims,
        layers=encoding.layers,
        inner=encoding.replace(layers=None),
        **leaves,
        **statics,
    )


def table(encoding: Encoding, length: int) -> np.ndarray:  # [T, T]
    """Return the distance at which each query sees each key of a row; -1: not visible."""
    positions = np.arange(length, dtype=np.float64)
    back = np.subtract.outer(positions, positions)
    distances, window = np.full((length, length), -1.0), encoding.narrowed()
    within = back < (np.inf if window is None else window)
    with jax.enable_x64(True):
        encoding = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), encoding)
        row = Tokens(position=jnp.asarray(positions), contiguous=True)
        for region in encoding.regions(row, row):
            q, k = region.moved(row, region.q_position), region.moved(row, region.k_position)
            mask = within & np.asarray(region.holds(jnp.asarray(back)[None]))[0]
            moved = np.subtract.outer(float64(q.position), float64(k.position))
            distances = np.where(mask, moved, distances)
    return distances
