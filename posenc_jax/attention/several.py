"""Attention by several calls of a kernel, where one call does not fit.

Far keys at other positions are a call of their own, merged by log-sum; a bias that would be too
large is materialised for a piece of the queries at a time, with the mask. jax drops the gradient of
a log-sum, so this is for evaluation; what is differentiated is computed without a kernel.
"""

import functools
import logging
from collections.abc import Callable

import jax
import jax.numpy as jnp

from posenc_jax.attention import gathered, target
from posenc_jax.attention.kernels import (
    PIECE,
    Unfit,
    call_cudnn,
    call_splash,
    check_cudnn,
    check_splash,
    cudnn,
    differs_by_row,
    divided,
    splash,
)
from posenc_jax.attention.plain import bias_of, part, plain, ready, visible
from posenc_jax.attention.regions import NONE, by_regions, with_sink
from posenc_jax.encoding import Encoding, Phase, Region, Tokens
from posenc_jax.layers import chunk_of, overrides

PLATFORMS = ("gpu", "tpu")
PIECES = 8  # at least, since a piece reads no keys after its own


def kernel(
    q,
    k,
    v,
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None,
    otherwise: Callable | None = None,
) -> jax.Array:  # [B, H, Q, K]
    """Compute attention with the kernel of this platform, or raise Unfit.

    Where what only several calls can do is differentiated, `otherwise` computes it, of the same
    arguments; None: it raises Unfit.
    """
    platform = target.platform()
    if platform not in PLATFORMS:
        raise Unfit(
            f"attention='kernel' needs a GPU or a TPU, but this process runs on {platform}; "
            "use auto, plain or blockwise"
        )
    if k_tokens.axis is not None:
        return gathered.attention(q, k, v, encoding, q_tokens, k_tokens, phase=phase)
    run, check = (cudnn, check_cudnn) if platform == "gpu" else (splash, check_splash)
    try:
        return run(q, k, v, encoding, q_tokens, k_tokens, phase=phase)
    except Unfit as reason:
        check(q, k, v, q_tokens, k_tokens)
        call = _calls_of(encoding, k_tokens, reason)
        return evaluated(call, otherwise, reason)(q, k, v, encoding, q_tokens, k_tokens, phase)


def kernel_if_fit(*arguments, **options) -> jax.Array | None:
    """Compute attention with a kernel; None if none fits this platform or the arguments."""
    if target.platform() not in PLATFORMS:
        return None
    try:
        return kernel(*arguments, **options)
    except Unfit as reason:
        warn_once(reason)
        return None


@functools.cache
def _warn_once(line: str) -> None:
    logging.getLogger("posenc_jax").warning(line)


def warn_once(reason: Unfit) -> None:
    _warn_once(f"attention runs without the kernel of this platform: {reason}")


def evaluated(call: Callable, otherwise: Callable | None, reason: Unfit) -> Callable:
    """`call`, or `otherwise` where it is differentiated."""

    @jax.custom_vjp
    def run(*arguments):
        return call(*arguments)

    def forward(*arguments):
        if otherwise is None:
            raise reason
        warn_once(reason)
        return jax.vjp(otherwise, *arguments)

    run.defvjp(forward, lambda pull, gradient: pull(gradient))
    return run


def _calls_of(encoding: Encoding, k_tokens: Tokens, reason: Unfit) -> Callable:
    """The calls that together are attention with an encoding."""
    biased, chunk = overrides(encoding, "bias"), chunk_of(encoding)
    if overrides(encoding, "logits"):
        raise reason
    if overrides(encoding, "regions"):
        if biased or encoding.narrowed() is not None or k_tokens.document is not None:
            raise reason
        compute = functools.partial(by_regions, in_region)
    elif biased or k_tokens.document is not None or chunk is not None:
        if target.platform() == "tpu":
            raise reason
        compute = by_pieces
    else:  # a sink
        compute = functools.partial(in_region, region=Region(window=encoding.narrowed()))

    def call(q, k, v, encoding, q_tokens, k_tokens, phase):
        out, logsum = compute(q, k, v, encoding, q_tokens, k_tokens, phase=phase)
        return with_sink(out, logsum, encoding.sink(q_tokens))

    return call


def in_region(
    q, k, v, encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens, *, phase, region: Region
) -> tuple[jax.Array, jax.Array]:  # [B, H, T, K] and [B, H, T]
    """Attention to the keys of a region: keys at least n back are those of a row without its last n
    keys, for queries without the first n."""
    if region.first is not None:
        return _to_first(q, k, v, encoding, q_tokens, k_tokens, phase, region)
    if region.between is not None:
        return _of_chunks(q, k, v, encoding, q_tokens, k_tokens, phase, region)
    nearest, length = region.nearest, q.shape[2]
    if nearest >= length:
        return _nothing(q, v)
    q, k, v = ready(q, k, v, encoding, q_tokens, k_tokens, phase)
    q = q[:, :, nearest:]
    k, v = (x[:, :, : length - nearest] for x in (k, v))
    window = None if region.window is None else region.window - nearest
    if target.platform() == "gpu":
        options = dict(is_causal=True, return_residual=True)
        out, logsum = call_cudnn(q, k, v, size=q.shape[3], window=window, **options)
    else:
        check_splash(q, k, v, q_tokens, k_tokens)
        out, logsum = call_splash(divided(q), k, v, window=window, return_residual=True)
    return _after(nearest, out, logsum)


def _nothing(q, v):
    """Attention of queries that see no key."""
    return jnp.zeros(q.shape, v.dtype), jnp.full(q.shape[:3], NONE)


def _after(count: int, out, logsum):
    """Attention with `count` more queries before, which see no key."""
    before = [(0, 0), (0, 0), (count, 0)]
    return jnp.pad(out, [*before, (0, 0)]), jnp.pad(logsum, before, constant_values=NONE)


def _to_first(q, k, v, encoding, q_tokens, k_tokens, phase, region: Region):
    """The same for the first keys of the row, which are few."""
    order, first = jnp.arange(q.shape[2]), region.first
    q_tokens = q_tokens.replace(order=order)
    k_tokens = k_tokens.replace(order=order[:first], position=k_tokens.position[..., :first])
    if region.k_position is not None:
        region = region.replace(k_position=region.k_position[..., :first])
    if phase is not None:
        phase = phase.replace(k_cos=phase.k_cos[..., :first, :], k_sin=phase.k_sin[..., :first, :])
    k, v = k[:, :, :first], v[:, :, :first]
    return plain(q, k, v, encoding, q_tokens, k_tokens, phase=phase, region=region)


def _of_chunks(q, k, v, encoding, q_tokens, k_tokens, phase, region: Region):
    """The same for chunks of keys that are a number of chunks back from their query's."""
    if target.platform() == "tpu" or region.chunks is None or k_tokens.position.ndim > 1:
        raise Unfit("keys at positions of their chunks")
    chunk, least, most = region.chunks
    length = q.shape[2]
    count = -(-length // chunk)
    if least >= count:
        return _nothing(q, v)
    q, k, v = ready(q, k, v, encoding, q_tokens, k_tokens, phase)
    fill = [(0, 0), (0, 0), (0, count * chunk - length), (0, 0)]
    q, k, v = (jnp.pad(x, fill) for x in (q, k, v))
    options = dict(size=q.shape[3], return_residual=True, is_causal=least == 0)

    def apart(x, first: int, end: int):  # chunks as rows
        x = x[:, :, first * chunk : end * chunk]
        x = x.reshape(*x.shape[:2], end - first, chunk, *x.shape[3:])
        return jnp.moveaxis(x, 2, 1).reshape(-1, x.shape[1], *x.shape[3:])

    def together(x):
        x = x.reshape(len(q), -1, *x.shape[1:])
        return jnp.moveaxis(x, 1, 2).reshape(len(q), x.shape[2], -1, *x.shape[4:])

    if most is not None:
        given = apart(q, least, count), *(apart(x, 0, count - least) for x in (k, v))
        out, logsum = map(together, call_cudnn(*given, **options))
    else:
        calls = []
        for number in range(least, count):
            own = q[:, :, number * chunk : (number + 1) * chunk]
            seen = (x[:, :, : (number - least + 1) * chunk] for x in (k, v))
            calls.append(call_cudnn(own, *seen, **options))
        out, logsum = (jnp.concatenate(each, axis=2) for each in zip(*calls, strict=True))
    out, logsum = _after(least * chunk, out, logsum)
    return out[:, :, :length], logsum[:, :, :length]


def by_pieces(
    q, k, v, encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens, *, phase
) -> tuple[jax.Array, jax.Array]:
    """Attention of a piece of the queries at a time, with the mask in the bias."""
    heads, length = q.shape[1:3]
    q, k, v = ready(q, k, v, encoding, q_tokens, k_tokens, phase)
    rows = len(q) if differs_by_row(encoding, k_tokens) else 1
    most = min(PIECE // (rows * heads * length), length // PIECES)
    piece = 1 << max(6, most.bit_length() - 1)
    outs = []
    for first in range(0, length, piece):
        end = min(first + piece, length)
        own, seen = part(q_tokens, first, end), part(k_tokens, 0, end)
        queries = end - first
        mask = visible(own, seen, queries, end, encoding.narrowed(), chunk_of(encoding))
        bias = bias_of(encoding, own, seen, queries, end)
        bias = jnp.where(mask, 0.0 if bias is None else bias, NONE).astype(q.dtype)
        given = q[:, :, first:end], k[:, :, :end], v[:, :, :end], bias
        outs.append(call_cudnn(*given, size=q.shape[3], return_residual=True))
    out, logsum = (jnp.concatenate(each, axis=2) for each in zip(*outs, strict=True))
    return out, logsum
