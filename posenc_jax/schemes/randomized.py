"""Random training positions from a longer range, for any inner encoding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import schemes
from posenc_jax.checks import flag, known, token_count, whole_number
from posenc_jax.encoding import Dims, Encoding, KeySum, check_reach, static
from posenc_jax.layers import Wrapper, bearer, overrides

OPTIONS = ("inner", "max_position", "inner_length", "evenly", "positions", "chunks", "tail")
DRAWN = ("sorted", "chunks")


class Randomized(Wrapper):
    """Ruoss et al. 2023, arXiv:2305.16843: sorted distinct positions, drawn once per pass.

    L in every formula, extensions and `logn` included, is max_position, since training covers
    positions up to there. For a pretrained model, `inner_length` sets L to its trained length:
    with yarn this is Randomized YaRN (Mehta et al. 2026, arXiv:2606.23687).

    `positions=chunks` cuts a row at random places into consecutive chunks and moves each by a jump
    (PoSE, Zhu et al. 2023, arXiv:2309.10400); `tail` moves the last tokens to the end of the range
    (EndPrompt, arXiv:2605.14589). Short rows then have far distances.
    """

    max_position: int = static()
    evenly: bool = static(default=False)
    drawn: str = static(default="sorted")
    chunks: int = static(default=2)
    tail: int = static(default=0)

    @property
    def reach(self):
        return self.max_position if self.evenly else self.inner.reach

    @property
    def remedy(self):
        return self.inner.remedy if not self.evenly else "use a shorter length, or evenly=False"

    def positions(self, length, key=None):
        if key is not None:
            if length > self.max_position:
                raise ValueError(
                    f"cannot draw {length} different positions below max_position = "
                    f"{self.max_position}; use a shorter length or a larger max_position"
                )
            if self.tail or self.drawn == "chunks":
                return self._jumped(length, key)
            drawn = jax.random.choice(key, self.max_position, (length,), replace=False)
            return jnp.sort(drawn)
        check_reach(self, length)
        if self.evenly:
            return jnp.asarray(np.arange(length, dtype=np.int64) * self.max_position // length)
        return jnp.arange(length)

    def _jumped(self, length: int, key: jax.Array) -> jax.Array:
        """Consecutive positions but for jumps."""
        if length == self.max_position:
            raise ValueError(
                f"positions do not jump in rows of {length} tokens, which fill max_position = "
                f"{self.max_position}; raise extension.scale, or use shorter rows"
            )
        if length < (pieces := self.tail + 1 if self.tail else self.chunks):
            raise ValueError(
                f"a row of {length} tokens is too short for positions that jump: it needs {pieces}"
            )
        places, room = jnp.arange(length), self.max_position - length
        if self.tail:
            return places + room * (places >= length - self.tail)
        cut_key, jump_key = jax.random.split(key)
        cuts = 1 + jax.random.choice(cut_key, length - 1, (self.chunks - 1,), replace=False)
        jumps = [jnp.int32(0)]
        for one in jax.random.split(jump_key, self.chunks - 1):
            jumps.append(jax.random.randint(one, (), jumps[-1], room + 1))
        return places + jnp.stack(jumps)[jnp.searchsorted(jnp.sort(cuts), places, side="right")]

    def consecutive(self, key=None):
        return key is None and not self.evenly and self.inner.consecutive()


def build(
    dims: Dims,
    key: jax.Array | None = None,
    *,
    inner: str = "rope",
    max_position: int | None = None,
    inner_length: int | None = None,
    evenly: bool = False,
    positions: str = "sorted",
    chunks: int = 2,
    tail: int = 0,
    **inner_options,
) -> Randomized:
    """Draw positions below `max_position` (None: 8 L); build the inner encoding, with the
    remaining options, for `inner_length` (None: max_position)."""
    known("positions", positions, DRAWN)
    whole_number("chunks", chunks, at_least=2)
    whole_number("tail", tail, at_least=0)
    if tail and positions != "sorted":
        raise ValueError(f"tail = {tail} goes without positions={positions}; set one of them")
    if max_position is None:
        max_position = 8 * dims.train_length
    token_count("max_position", max_position, at_least=dims.train_length)
    if inner_length is None:
        inner_length = max_position
    token_count("inner_length", inner_length)
    inner_dims = dataclasses.replace(dims, train_length=inner_length)
    encoding = schemes.build_inner("randomized", OPTIONS, inner, inner_dims, key, inner_options)
    check_reach(encoding, max_position)
    jumps = tail > 0 or positions == "chunks"
    if jumps and not any(map(_reads_positions, map(encoding.layer, range(encoding.period)))):
        raise ValueError(f"positions that jump have no effect on inner {inner!r}, which reads none")
    return Randomized(
        dims=dims,
        layers=encoding.layers,
        inner=encoding.replace(layers=None),
        max_position=max_position,
        evenly=flag("evenly", evenly),
        drawn=positions,
        chunks=chunks,
        tail=tail,
    )


def _reads_positions(encoding: Encoding) -> bool:
    of_content = isinstance(bearer(encoding, "bias"), KeySum)
    of_distance = overrides(encoding, "bias") and not of_content
    return overrides(encoding, "phase") or overrides(encoding, "embed") or of_distance
