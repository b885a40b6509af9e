"""Kernels that come with jax: cuDNN's on NVIDIA GPUs, splash attention on TPUs.

Both take no bias by themselves. ALiBi's needs none: a constant per query falls out of the softmax,
so -m (i - j) is as good as m j, which is a product of a few more entries of q and k. Other biases
are laid out whole for cuDNN, up to MATERIALISED keys. Where a kernel does not fit, attention goes
without and says so once.
"""

import functools
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention.plain import check_fits, has_bias, spread, turn
from posenc_jax.encoding import DistanceBias, Encoding

PLATFORMS = ("gpu", "tpu")
MATERIALISED = 4096  # keys up to which a bias is laid out, [1, H, T, T]
CUDNN = "cudnn"  # which jax.nn is asked for
LANES = 128  # splash attention takes whole multiples of keys
EXTRA = 8  # entries that carry ALiBi's bias


class Unfit(ValueError):
    """Why a kernel cannot take these arguments."""


def kernel(q, k, v, encoding: Encoding, **places) -> jax.Array:  # [B, H, Q, K]
    """What `plain` computes, by the kernel of this process's platform; raises Unfit."""
    platform = jax.default_backend()
    if platform not in PLATFORMS:
        raise Unfit(
            f"attention='kernel' needs a GPU or a TPU, this process runs on {platform}; "
            "take auto, plain or blockwise"
        )
    return (cudnn if platform == "gpu" else splash)(q, k, v, encoding, **places)


def kernel_if_fit(q, k, v, encoding: Encoding, **places) -> jax.Array | None:
    """None where there is none for this platform or these arguments."""
    if jax.default_backend() not in PLATFORMS:
        return None
    try:
        return kernel(q, k, v, encoding, **places)
    except Unfit as reason:
        _say_once(f"attention goes without the kernel of this platform: {reason}")
        return None


@functools.cache
def _say_once(line: str) -> None:
    logging.getLogger("posenc_jax").warning(line)


def cudnn(
    q, k, v, encoding, *, phase, q_positions, k_positions, contiguous, segments, window, order=None
):
    length, size = q.shape[2:]
    _check_places(q, k, contiguous, order)
    if segments is not None:
        raise Unfit("several documents in a row")
    if q.dtype != jnp.bfloat16:
        raise Unfit(f"cuDNN's takes bfloat16, not {q.dtype.name}; set model.dtype='bfloat16'")
    if length % 2:  # which cuDNN's gradient refuses, later than it could be caught here
        raise Unfit(f"an odd number of tokens, {length}")
    biased = has_bias(encoding)
    if biased:
        check_fits(encoding, "heads", q.shape[1])
    if biased and window is not None:
        raise Unfit("a window and a bias at once")
    bias = None
    q, k, v = turn(q, k, v, encoding, phase)
    q = _grown(q, encoding, q_positions)
    slopes = _slopes(encoding)
    if slopes is not None:
        q, k, v = _with_slopes(q, k, v, slopes * size**0.5)
    elif biased:
        if length > MATERIALISED or q_positions.ndim > 1:
            raise Unfit(f"a bias of more than {MATERIALISED} keys, or of its own for each row")
        if isinstance(encoding, DistanceBias):
            bias = spread(encoding.curve(jnp.arange(length)), length)[None]
        else:
            bias = encoding.bias(q_positions, k_positions)[None]
        bias = bias.astype(q.dtype)  # cuDNN's gives NaN for a bias in float32
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    window_size = None if window is None else (window - 1, 0)
    try:
        out = jax.nn.dot_product_attention(
            q,
            k,
            v,
            bias,
            scale=size**-0.5,
            is_causal=True,
            local_window_size=window_size,
            implementation=CUDNN,
        )
    except (RuntimeError, NotImplementedError) as error:  # no cuDNN, an old one, an odd size
        raise Unfit(str(error)) from error
    return out.swapaxes(1, 2)[..., :size]


def splash(
    q,
    k,
    v,
    encoding,
    *,
    phase,
    q_positions,
    k_positions,
    contiguous,
    segments,
    window,
    order=None,
    interpret=False,
):
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as kernels,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    heads, length, size = q.shape[1:]
    _check_places(q, k, contiguous, order)
    if length % LANES:
        raise Unfit(f"splash attention takes a multiple of {LANES} tokens, not {length}")
    if jax.device_count() > 1 and not interpret:
        raise Unfit("splash attention would gather the rows of several devices on each")
    if q.dtype != jnp.bfloat16 and not interpret:
        raise Unfit(f"splash attention rounds {q.dtype.name} products; set model.dtype='bfloat16'")
    slopes = _slopes(encoding)
    if has_bias(encoding) and slopes is None:
        raise Unfit("splash attention takes no bias")
    q, k, v = turn(q, k, v, encoding, phase)
    q = _grown(q, encoding, q_positions)
    q = (q.astype(jnp.float32) * size**-0.5).astype(q.dtype)  # it has no scale of its own
    if slopes is not None:
        q, k, v = _with_slopes(q, k, v, slopes)
    shape = length, length
    if window is None:
        mask = masks.CausalMask(shape)
    else:
        mask = masks.LocalMask(shape, (window - 1, 0), 0)
    run = kernels.make_splash_mha_single_device(
        masks.MultiHeadMask([mask] * heads), interpret=interpret
    )
    documents = None
    if segments is not None:
        rows = (len(q), length)
        documents = kernels.SegmentIds(*(jnp.broadcast_to(ids, rows) for ids in segments))
    out: Any = jax.vmap(run)(q, k, v, documents)
    return out[..., :size]


def _check_places(q, k, contiguous: bool, order):
    if order is not None or not contiguous:
        raise Unfit("positions that are given")
    if q.shape[2] != k.shape[2]:
        raise Unfit(f"{q.shape[2]} queries of {k.shape[2]} keys")


def _grown(q, encoding, q_positions):
    grown = encoding.query_scale(q_positions)
    if grown is None:
        return q
    return (q * jnp.atleast_2d(grown)[:, None, :, None]).astype(q.dtype)


def _slopes(encoding) -> jax.Array | None:
    """Not of a class that changed the curve and left what its parent says of it."""
    if not isinstance(encoding, DistanceBias):
        return None
    of_curve, of_straight = (
        next(one for one in type(encoding).__mro__ if name in vars(one))
        for name in ("curve", "straight")
    )
    return encoding.straight() if issubclass(of_straight, of_curve) else None


def _with_slopes(q, k, v, slopes: jax.Array):  # [H]
    """Entries whose product is m j; j and m are given in parts that bfloat16 holds."""
    length = q.shape[2]
    if length > 1 << 16:
        raise Unfit(f"a slope over {length:,} tokens does not fit into bfloat16's digits")
    rest, parts = slopes.astype(jnp.float32), []
    for _ in range(3):
        parts.append(rest.astype(jnp.bfloat16).astype(jnp.float32))
        rest = rest - parts[-1]
    j = np.arange(length)
    of_q = jnp.stack([part * unit for unit in (256.0, 1.0) for part in parts], axis=-1)  # [H, 6]
    of_k = np.stack([part for part in (j // 256, j % 256) for _ in range(3)], axis=-1)  # [T, 6]
    spare = EXTRA - of_k.shape[-1]
    of_q = jnp.pad(of_q, ((0, 0), (0, spare)))[None, :, None].astype(q.dtype)
    of_k = jnp.asarray(np.pad(of_k, ((0, 0), (0, spare))), k.dtype)
    q = jnp.concatenate([q, jnp.broadcast_to(of_q, (*q.shape[:3], EXTRA))], axis=-1)
    k = jnp.concatenate([k, jnp.broadcast_to(of_k, (*k.shape[:3], EXTRA))], axis=-1)
    return q, k, jnp.pad(v, ((0, 0), (0, 0), (0, 0), (0, EXTRA)))
