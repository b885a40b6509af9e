"""Attention kernels from jax: cuDNN on NVIDIA GPUs, splash attention on TPUs.

ALiBi needs no bias in the kernel: a constant per query cancels in the softmax, so m j replaces
-m (i - j), and m j is a product of a few more entries of q and k. Other biases are materialised for
cuDNN, up to MATERIALISED keys and PIECE numbers; splash attention takes none.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from posenc_jax.attention import target
from posenc_jax.attention.plain import bias_of, check_fits, documents_of, ready
from posenc_jax.encoding import DistanceBias, Encoding, Phase, SlopeBias, Tokens
from posenc_jax.layers import bearer, chunk_of, overrides
from posenc_jax.runtime.devices import DATA

MATERIALISED = 4096  # keys up to which a bias is materialised, [B or 1, H, T, T]
PIECE = 1 << 29  # numbers of a materialised bias at once, 1 GiB
CUDNN = "cudnn"  # the implementation requested from jax.nn
LANES = 128  # splash attention takes multiples of this number of keys
EXTRA = 8  # entries that carry ALiBi's bias


class Unfit(ValueError):
    """The reason why a kernel cannot take these arguments."""


def cudnn(
    q,
    k,
    v,
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None = None,
) -> jax.Array:
    length = q.shape[2]
    biased, window = overrides(encoding, "bias"), encoding.narrowed()
    check_cudnn(q, k, v, q_tokens, k_tokens)
    check_hooks(encoding)
    if k_tokens.document is not None:
        raise Unfit("several documents in a row")
    if biased:
        check_fits(encoding, "heads", q.shape[1])
    if biased and window is not None:
        raise Unfit("a window together with a bias")
    q, k, v = ready(q, k, v, encoding, q_tokens, k_tokens, phase)
    size = q.shape[3]
    options: Any = dict(size=size, is_causal=True, window=window)
    slopes = _slopes(encoding) if k_tokens.contiguous else None
    if slopes is not None:
        return call_cudnn(*_with_slopes(q, k, slopes * size**0.5), v, **options)
    if not biased:
        return call_cudnn(q, k, v, **options)
    by_row = differs_by_row(encoding, k_tokens)
    rows = target.share_of_rows(len(q)) if by_row else 1
    if length > MATERIALISED or rows * q.shape[1] * length**2 > PIECE:
        raise Unfit(f"a bias of more than {MATERIALISED} keys or {PIECE:,} numbers")

    def call(q, k, v, encoding, q_tokens, k_tokens):
        bias: Any = bias_of(encoding, q_tokens, k_tokens, length, length)
        bias = bias.reshape(-1, *bias.shape[-3:]).astype(q.dtype)  # float32: cuDNN returns NaN
        return call_cudnn(q, k, v, bias, **options)

    if by_row:  # the backward pass computes the bias again, and not the attention
        call = jax.checkpoint(call, policy=lambda of, *_, **__: "attention" in of.name)
    return call(q, k, v, encoding, q_tokens, k_tokens)


def differs_by_row(encoding: Encoding, tokens: Tokens) -> bool:
    """Whether each row of a batch has a bias of its own."""
    by_content = overrides(encoding, "read") or tokens.document is not None
    return by_content or tokens.position.ndim > 1


def call_cudnn(
    q,
    k,
    v,
    bias=None,
    *,
    size: int,
    is_causal: bool = False,
    window: int | None = None,
    return_residual: bool = False,
) -> Any:
    """Attention with heads before tokens; with `return_residual`, its log-sums too. Scores are
    divided by the root of `size`, and values may have fewer entries than keys."""
    of_values = v.shape[3]
    v = jnp.pad(v, [(0, 0)] * 3 + [(0, k.shape[3] - of_values)])  # jax.nn wants as many
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    options: Any = dict(scale=size**-0.5, is_causal=is_causal)
    logsum = None
    try:
        if return_residual:
            out, logsum = with_logsums(q, k, v, bias, window=window, **options)
        else:
            options |= dict(local_window_size=None if window is None else (window - 1, 0))
            out = jax.nn.dot_product_attention(q, k, v, bias, implementation=CUDNN, **options)
    except (RuntimeError, NotImplementedError) as error:  # no cuDNN, an old version, an odd size
        raise Unfit(str(error)) from error
    out = out.swapaxes(1, 2)[..., :of_values]
    return out if logsum is None else (out, logsum)


def with_logsums(q, k, v, bias, *, scale: float, is_causal: bool, window: int | None) -> Any:
    """Attention and its log-sums [B, H, T] in float32. jax.nn rounds them to bfloat16, and a
    merged weight would be off by up to 3%."""
    from jax._src.cudnn import fused_attention_stablehlo as fused  # noqa: TID251

    mask = fused.MaskType.CAUSAL if is_causal else fused.MaskType.NO_MASK
    options: Any = dict(mask_type=mask, sliding_window_length=window, return_residual=True)
    out: Any = fused.dot_product_attention(q, k, v, bias, scale=scale, **options)
    return out


def splash(
    q,
    k,
    v,
    encoding: Encoding,
    q_tokens: Tokens,
    k_tokens: Tokens,
    *,
    phase: Phase | None = None,
    interpret: bool = False,
) -> jax.Array:
    check_splash(q, k, v, q_tokens, k_tokens, interpret)
    check_hooks(encoding)
    slopes = _slopes(encoding) if k_tokens.contiguous else None
    if overrides(encoding, "bias") and slopes is None:
        raise Unfit("splash attention takes no bias")
    q, k, v = ready(q, k, v, encoding, q_tokens, k_tokens, phase)
    q = divided(q)
    if slopes is not None:
        q, k = _with_slopes(q, k, slopes)
    documents = documents_of(q_tokens, k_tokens)
    options: Any = dict(window=encoding.narrowed(), interpret=interpret)
    return call_splash(q, k, v, documents, **options)


def divided(q):
    """Queries over the root of their size, by which splash attention does not divide."""
    return (q.astype(jnp.float32) * q.shape[3] ** -0.5).astype(q.dtype)


def call_splash(
    q,
    k,
    v,
    documents: tuple[jax.Array, jax.Array] | None = None,
    *,
    window: int | None = None,
    return_residual: bool = False,
    interpret: bool = False,
) -> Any:
    """The same by splash attention, each device on its own rows; scores are not divided."""
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as kernels,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    heads, length = q.shape[1:3]
    shape = length, length
    mask = masks.CausalMask(shape) if window is None else masks.LocalMask(shape, (window - 1, 0), 0)
    run = jax.vmap(
        kernels.make_splash_mha_single_device(
            masks.MultiHeadMask([mask] * heads), save_residuals=return_residual, interpret=interpret
        )
    )
    mesh, segments = target.current_mesh(), None
    if documents is not None:
        rows = len(q), length
        segments = kernels.SegmentIds(*(jnp.broadcast_to(ids, rows) for ids in documents))
    if mesh is not None and mesh.size > 1:
        of_device = PartitionSpec(DATA)
        run = jax.shard_map(
            run, mesh=mesh, in_specs=of_device, out_specs=of_device, check_vma=False
        )
    out: Any = run(q, k, v, segments)
    return (out[0], out[1][0]) if return_residual else out


def check_cudnn(q, k, v, q_tokens: Tokens, k_tokens: Tokens) -> None:
    _check_tokens(q, k, v, q_tokens, k_tokens)
    if q.dtype != jnp.bfloat16:
        raise Unfit(f"cuDNN takes bfloat16, not {q.dtype.name}; set model.dtype='bfloat16'")
    if q.shape[2] % 2:  # cuDNN's gradient fails later, where it cannot be caught
        raise Unfit(f"an odd number of tokens, {q.shape[2]}")


def check_splash(q, k, v, q_tokens: Tokens, k_tokens: Tokens, interpret: bool = False) -> None:
    _check_tokens(q, k, v, q_tokens, k_tokens)
    if q.shape[2] % LANES:
        raise Unfit(f"splash attention takes a multiple of {LANES} tokens, not {q.shape[2]}")
    if interpret:
        return
    if target.current_mesh() is None and jax.device_count() > 1:
        raise Unfit("splash attention on several devices is compiled for a mesh of them")
    if q.dtype != jnp.bfloat16:
        raise Unfit(f"splash attention rounds {q.dtype.name} products; set model.dtype='bfloat16'")


def _check_tokens(q, k, v, q_tokens: Tokens, k_tokens: Tokens) -> None:
    if k_tokens.axis is not None:
        raise Unfit("rows that are cut over devices")
    if q_tokens.order is not None or k_tokens.order is not None:
        raise Unfit("given positions")
    if q.shape[2] != k.shape[2]:
        raise Unfit(f"{q.shape[2]} queries for {k.shape[2]} keys")
    if v.shape[3] != k.shape[3]:
        raise Unfit(f"values of size {v.shape[3]} for keys of size {k.shape[3]}")


def check_hooks(encoding: Encoding) -> None:
    for hook, what in (
        ("sink", "a learned sink"),
        ("regions", "keys at several positions"),
    ):
        if overrides(encoding, hook):
            raise Unfit(what)
    if overrides(encoding, "logits"):
        raise Unfit("scores and bias that are not summed")
    if chunk_of(encoding) is not None:
        raise Unfit("chunks that do not see each other")


def _slopes(encoding: Encoding) -> jax.Array | None:
    """The slopes of a bias by distance, unless a subclass changes its curve or its bias."""
    inner = bearer(encoding, "bias")
    if not isinstance(inner, SlopeBias) or type(inner).curve is not SlopeBias.curve:
        return None
    return inner.slope() if type(inner).bias is DistanceBias.bias else None


def _with_slopes(q, k, slopes: jax.Array):  # [H]
    """Append entries whose product is m j; j and m are split into exact bfloat16 parts."""
    length = q.shape[2]
    if length > 1 << 16:
        raise Unfit(f"a slope over {length:,} tokens exceeds the precision of bfloat16")
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
    return q, k
