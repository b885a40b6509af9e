"""Encodings, queries, keys and values, and attention over them: compiled, and in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from sizes import DIMS

import posenc_jax
from posenc_jax.attention import attend

B, H, K = 2, DIMS.heads, DIMS.head_dim
KEY = jax.random.key(0)

# Eager attention compiles fifty programs; tests share those of this function.
compiled = jax.jit(attend, static_argnames=("implementation", "window"))


def build(name, dims=DIMS, key=KEY, **options):
    return posenc_jax.build(name, dims, key, **options)


def close(ours, theirs, atol=0.0, rtol=1e-7):
    """Two trees are of one structure, and their numbers equal but for rounding."""
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=atol, rtol=rtol), ours, theirs)


def qkv(queries, keys=None, groups=H, dtype=jnp.float32):
    rng = np.random.default_rng(0)
    shapes = [(B, queries, H, K)] + 2 * [(B, keys or queries, groups, K)]
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def content(*shape, seed=0):
    """Inputs of layers, [B, T, D]."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def documents(length, cut):
    """A second document begins at `cut` in each row."""
    return None if cut is None else jnp.asarray(np.tile(np.arange(length) >= cut, (B, 1)))


def visible(queries, keys, window=None, cut=None, nearest=0):
    """Whether each of the last queries sees a key, [Q, S]."""
    places = np.arange(keys)
    back = places[keys - queries :, None] - places
    seen = (back >= nearest) & (back < (window or keys))
    if cut is not None:
        seen &= (places[keys - queries :, None] >= cut) == (places >= cut)
    return seen


def scores_of(q, k):
    """Scaled products of [B, Q, H, K] and [B, S, G, K] in float64, [B, H, Q, S]."""
    k = np.repeat(np.float64(k), H // k.shape[2], axis=2)
    return np.einsum("bqhk,bshk->bhqs", np.float64(q), k) / q.shape[-1] ** 0.5


def turned(x, angle):
    """Rotate [B, T, H, K] by angles of float64, whose last axis is K / 2."""
    half = x.shape[-1] // 2
    z = (np.float64(x[..., :half]) + 1j * np.float64(x[..., half:])) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], axis=-1)


def mixed(scores, seen, v):
    """Attention to the seen keys in float64; zeros where a query sees none."""
    largest = np.where(seen, scores, -np.inf).max(-1, keepdims=True)
    weights = np.where(seen, np.exp(np.minimum(scores - largest, 0)), 0)
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1)
    return np.einsum("bhqs,bshk->bqhk", weights, np.repeat(np.float64(v), H // v.shape[2], axis=2))


@functools.partial(jax.jit, static_argnums=1)
def call(encoding, hook, *arguments):
    """What a hook of an encoding returns, by one program."""
    return getattr(encoding, hook)(*arguments)
