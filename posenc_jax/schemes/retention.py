"""Linear attention whose weights decay with the distance, without a softmax."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import ring, target
from posenc_jax.attention.plain import visible
from posenc_jax.attention.sharpest import blocks, by_queries
from posenc_jax.checks import flag
from posenc_jax.encoding import Dims, Encoding, Tokens, fixed
from posenc_jax.schemes import rope

CHUNK = 128  # tokens
CHUNKS = 8  # at once on a GPU or a TPU; on a CPU one, which fits its cache


class Retention(Encoding):
    """Sun et al. 2023, arXiv:2307.08621: the weight of a key is lambda^d q . k / sqrt(K), with
    lambda = 1 - 2^(-5-h) of head h and d the distance of the positions, and every output is divided
    by its root mean square.

    Queries and keys are rotated, or not (Lightning attention, Qin et al. 2024, arXiv:2401.04658). A
    row at positions 0, 1, 2, ... is computed by chunks, each with a state [K, K] of all keys before
    it: memory is linear in the length, and a cache holds the state alone; within a window it holds
    keys. Norms cancel factors on queries. The state is float32.
    """

    attends_across_devices = True
    phase_of_each = True

    rate: jax.Array  # [H], -ln lambda
    rotation: rope.RoPE | None = None

    def phase(self, positions):
        return None if self.rotation is None else self.rotation.phase(positions)

    def attend(self, q, k, v, q_tokens, k_tokens):
        if k_tokens.contiguous and q.shape[2] == k.shape[2] and self.window is None:
            return self._by_chunks(q, k, v, k_tokens.document)[0]

        def add(out, keys):
            k, v, k_tokens = keys
            return out + self._of_keys(q, k, v, k_tokens, q_tokens)

        out, keys = jnp.zeros((*q.shape[:3], v.shape[3])), (*_of_each_head(q, k, v), k_tokens)
        axis = k_tokens.axis
        out = add(out, keys) if axis is None else ring.around(axis, keys, out, add)
        return _normalised(out).astype(q.dtype)

    def recur(self, q, k, v, before, counts):
        return self._by_chunks(q, k, v, None, before, counts)

    def _by_chunks(self, q, k, v, documents=None, before=None, counts=None):
        """Return the output [B, H, T, K], and the state [B, H, K, K] after the first `counts`."""
        batch, heads, length, size = q.shape
        k, v = _of_each_head(q, k, v)
        chunk = min(CHUNK, length)
        each = 1 if target.platform() == "cpu" else min(CHUNKS, -(-length // chunk))
        starts = np.arange(0, length, each * chunk)[:, None] + chunk * np.arange(each)  # [n, N]
        places = np.arange(chunk)[:, None]
        counts = jnp.atleast_1d(length if counts is None else counts)  # [B or 1]
        near = self._decay((places - places.T)[None, None])  # [1, H, 1, C, C]
        far = self._decay(places[None, None] + 1)  # [1, H, 1, C, 1]

        def step(state, part):  # N chunks
            *qkv, start, of = part
            q, k, v = (x.reshape(*x.shape[:2], each, chunk, -1) for x in qkv)
            left = jnp.clip(counts[:, None] - start[None], 0, chunk)  # [B or 1, N]
            left = left[..., None, None]
            to_end = self._decay(left - 1 - places[None, None])  # [B or 1, H, N, C, 1]
            scores = _rounded("bhnqk,bhnsk->bhnqs", q, k) * near
            reach, kept = far, self._decay(left)
            if of is not None:
                own, last, previous = (ids.reshape(len(ids), 1, each, -1, 1) for ids in of)
                scores = jnp.where(own == own.swapaxes(3, 4), scores, 0.0)
                to_end, kept = to_end * (own == last), kept * (last == previous)
                reach = far * (own == previous)
            added = _rounded("bhnsk,bhnsv->bhnkv", (k * to_end).astype(k.dtype), v)
            states = []
            for n in range(each):
                states.append(state)
                state = kept[:, :, n] * state + added[:, :, n]
            seen = jnp.stack(states, axis=2).astype(q.dtype)
            out = reach * _rounded("bhnqk,bhnkv->bhnqv", q, seen)
            out = out + _rounded("bhnqs,bhnsv->bhnqv", scores.astype(v.dtype), v)
            out = _normalised(out * size**-0.5).astype(q.dtype)
            return state, out.reshape(batch, heads, each * chunk, -1)

        of = None
        if documents is not None:
            ends = (starts + chunk).clip(max=length) - 1
            at_ends = (documents[:, at] for at in (ends, (starts - 1).clip(0, length - 1)))
            own = blocks(documents, 1, each * chunk, fill=-1)  # [n, B, N C]
            of = own, *(jnp.moveaxis(ids, 1, 0) for ids in at_ends)  # [n, B, N] twice
        if before is None:
            before = jnp.zeros((batch, heads, size, v.shape[3]))
        parts = (*(blocks(x, 2, each * chunk) for x in (q, k, v)), starts, of)
        after, out = jax.lax.scan(jax.checkpoint(step), before, parts)
        return jnp.moveaxis(out, 0, 2).reshape(batch, heads, -1, v.shape[3])[:, :, :length], after

    def _of_keys(self, q, k, v, k_tokens: Tokens, q_tokens: Tokens) -> jax.Array:  # [B, H, Q, K]
        """Return the sums over keys in any order, in float32, by blocks of queries."""

        def of_block(q, k, v, q_tokens, k_tokens):
            seen = visible(q_tokens, k_tokens, q.shape[2], k.shape[2], self.window, None)
            decay = self._decay(q_tokens.position[:, :, None] - k_tokens.position[:, None, :])
            scores = _product("bhqk,bhsk->bhqs", q, k) * q.shape[3] ** -0.5 * decay
            return _product("bhqs,bhsv->bhqv", jnp.where(seen, scores, 0.0).astype(v.dtype), v)

        return by_queries(of_block, q, k, v, q_tokens, k_tokens)

    def _decay(self, back) -> jax.Array:  # [B or 1, ...] -> [B or 1, H, ...]
        """Powers of lambda; 0 for tokens behind the end."""
        back = back[:, None]
        rate = self.rate.reshape(1, -1, *[1] * (back.ndim - 2))
        powers = jnp.exp(-rate * jnp.maximum(back, 0))
        return jnp.where(back < 0, 0.0, powers)


def _of_each_head(q, k, v):  # [B, G, S, K] twice -> [B, H, S, K]
    repeats = q.shape[1] // k.shape[1]
    return jnp.repeat(k, repeats, axis=1), jnp.repeat(v, repeats, axis=1)


def _normalised(out: jax.Array) -> jax.Array:  # [..., K]
    return out * jax.lax.rsqrt(jnp.mean(out**2, axis=-1, keepdims=True) + 1e-6)


def _rounded(names: str, a, b):
    """A product of the type of its operands, for a GPU multiplies bfloat16 with a float32 gradient
    ten times as slowly."""
    return jnp.einsum(names, a, b, precision="highest")


def _product(names: str, a, b):
    return jnp.einsum(names, a, b, precision="highest", preferred_element_type=jnp.float32)


def build(dims: Dims, *, rotate: bool = True) -> Retention:
    """Build retention; it rotates as RoPE with base 10,000."""
    rate = -np.log1p(-(2.0 ** (-5.0 - np.arange(dims.heads))))
    rotation = rope.build(dims) if flag("rotate", rotate) else None
    return Retention(dims=dims, rate=fixed(rate), rotation=rotation)
