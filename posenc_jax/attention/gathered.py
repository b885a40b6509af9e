"""Attention of rows that are cut over devices by the kernel of a GPU or a TPU.

Each device gathers all keys and values. Its two pieces of queries (`ring.dealt`) take one causal
call each with their own keys, and one call for every earlier piece of keys: 2N + 1 calls on each of
N devices, merged by log-sums. The backward pass gives each call the merged output and log-sum.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.attention import kernels, ring, target
from posenc_jax.attention.plain import ready
from posenc_jax.attention.regions import NONE, merge
from posenc_jax.encoding import Encoding, Phase, Tokens
from posenc_jax.layers import bearer, overrides


def attention(
    q, k, v, encoding: Encoding, q_tokens: Tokens, k_tokens: Tokens, *, phase: Phase | None
) -> jax.Array:  # [B, H, Q, K]
    """Compute attention to the keys of all devices, or raise Unfit."""
    on_gpu = target.platform() == "gpu"
    kernels.check_hooks(encoding)
    limited = encoding.narrowed() is not None or k_tokens.document is not None
    if limited or overrides(encoding, "bias"):
        raise kernels.Unfit("a bias, a window or documents in rows that are cut over devices")
    if phase is not None and not bearer(encoding, "phase").phase_of_each:
        raise kernels.Unfit("a rotation that depends on the positions of other devices")
    check = kernels.check_cudnn if on_gpu else kernels.check_splash
    piece = (x[:, :, : x.shape[2] // 2] for x in (q, k, v))
    check(*piece, *(tokens.replace(axis=None, order=None) for tokens in (q_tokens, k_tokens)))
    q, k, v = ready(q, k, v, encoding, q_tokens, k_tokens, phase)
    q = q if on_gpu else kernels.divided(q)
    halves = (jnp.stack(jnp.split(x, 2, axis=2)) for x in (q, k, v))
    return jnp.concatenate([*_attention(k_tokens.axis, *halves)], axis=2)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(axis: str, q, k, v):  # [2, B, H, T, K], and G heads of keys and values
    return _forward(axis, q, k, v)[0]


def _forward(axis: str, q, k, v):
    keys, values = (jax.lax.all_gather(x, axis, tiled=True) for x in (k, v))

    def add(state, half, piece, is_causal=False):
        added = of_part(q[half], keys[piece], values[piece], is_causal)
        merged = merge([jax.tree.map(lambda x: x[half], state), added])
        return jax.tree.map(lambda x, new: x.at[half].set(new), state, merged)

    nothing = jnp.zeros(q.shape, jnp.float32), jnp.full(q.shape[:4], NONE, jnp.float32)
    out, logsum = _over_calls(axis, add, nothing)
    out = out.astype(q.dtype)
    return out, (q, k, v, out, logsum)


def _backward(axis: str, saved, d_out):
    q, k, v, out, logsum = saved
    keys, values = (jax.lax.all_gather(x, axis, tiled=True) for x in (k, v))

    def add(state, half, piece, is_causal=False):
        given = q[half], keys[piece], values[piece], out[half], logsum[half], d_out[half]
        added = zip(state, (half, piece, piece), gradients_of_part(*given, is_causal), strict=True)
        return tuple(total.at[place].add(part) for total, place, part in added)

    zeros = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q, keys, values))
    d_q, *others = _over_calls(axis, add, zeros)
    d_k, d_v = (jax.lax.psum_scatter(x, axis, tiled=True) for x in others)
    return tuple(gradient.astype(x.dtype) for gradient, x in ((d_q, q), (d_k, k), (d_v, v)))


_attention.defvjp(_forward, _backward)


def _over_calls(axis: str, add: Callable, state: Any) -> Any:
    """Call `add` with each half of the queries and each gathered piece of keys that it sees."""
    devices, device = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    for half in (0, 1):
        state = add(state, half, 2 * device + half, is_causal=True)
    pieces, calls = range(2 * devices), jnp.arange(2 * devices - 1)
    places = jnp.array([2 * ring.owner(piece, devices) + piece % 2 for piece in pieces])
    first = jnp.where(device % 2, 2 * devices - 1 - device, device)  # calls of the first half
    halves = (calls >= first).astype(jnp.int32)
    pairs = halves, places[calls - halves * first]
    return jax.lax.scan(lambda state, pair: (add(state, *pair), None), state, pairs)[0]


def of_part(q, k, v, is_causal: bool) -> tuple[jax.Array, jax.Array]:
    """Attention to as many keys by the kernel of this platform, with log-sums."""
    if target.platform() == "gpu":
        options = dict(is_causal=is_causal, return_residual=True)
        return kernels.call_cudnn(q, k, v, size=q.shape[3], **options)
    out, (logsum,) = jax.vmap(_splash(q, is_causal, save_residuals=True))(q, k, v)
    return out, logsum


def gradients_of_part(q, k, v, out, logsum, d_out, is_causal: bool) -> Any:
    """Gradients of q, k and v, where the output and the log-sum are those of all keys."""
    if target.platform() == "gpu":
        from jax._src.cudnn import fused_attention_stablehlo as fused  # noqa: TID251

        mask = fused.MaskType.CAUSAL if is_causal else fused.MaskType.NO_MASK
        layout, unused = fused.AttentionLayout.BTNH.value, jnp.zeros(0, q.dtype)
        q, k, v, out, d_out = (x.swapaxes(1, 2) for x in (q, k, v, out, d_out))
        options = q.shape[3] ** -0.5, 0, 0.0, (False, False), mask, layout, None, 0, False
        saved = q, k, v, *[unused] * 7, logsum, out
        gradients = fused._dot_product_attention_bwd_rule(*options, saved, d_out)
        return [x.swapaxes(1, 2) for x in gradients[:3]]
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash

    run = _splash(q, is_causal)

    def of_row(q, k, v, out, logsum, d_out):
        saved = q, k, v, None, None, out, logsum, run.dq_mask_info, run.dkv_mask_info
        return splash._splash_attention_bwd(**run.kwargs, res=saved, do=d_out)[3:6]

    return jax.vmap(of_row)(q, k, v, out, logsum, d_out)


def _splash(q, is_causal: bool, **options) -> Any:
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    mask = (splash.CausalMask if is_causal else splash.FullMask)((q.shape[2], q.shape[2]))
    masks = splash.MultiHeadMask([mask] * q.shape[1])
    return splash.make_splash_mha_single_device(masks, **options)
