"""Losses of targets from the last hidden states, without all logits at once."""

from functools import partial

import jax
import jax.numpy as jnp

from posenc_jax.attention import target
from posenc_jax.runtime import devices

# Logits computed at once: 64 MiB, and 1 GiB on a GPU or TPU.
LOGITS = {"cpu": 1 << 24, "gpu": 1 << 28, "tpu": 1 << 28}


def logits_of(
    x: jax.Array, kernel: jax.Array, dtype: str, cap: float | None = None
) -> jax.Array:  # [..., D] -> [..., V]
    # Flattened: the weight gradient of a 3-D operand takes twice as long.
    flat = x.reshape(-1, x.shape[-1])
    logits = jnp.dot(flat, kernel.astype(dtype), preferred_element_type=jnp.float32)
    logits = logits if cap is None else cap * jnp.tanh(logits / cap)
    return logits.reshape(*x.shape[:-1], kernel.shape[1])


def likelihood(logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the nats of each target, [..., V] and [...] -> [...], and the token ranked first.

    Targets are selected by comparison, since the gradient of a gather is a scatter.
    """
    classes = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    picked = jnp.sum(jnp.where(classes == targets[..., None], logits, 0.0), axis=-1)
    return jax.nn.logsumexp(logits, axis=-1) - picked, jnp.argmax(logits, axis=-1)


def likelihoods(
    x: jax.Array, kernel: jax.Array, targets: jax.Array, dtype: str, cap: float | None = None
) -> tuple[jax.Array, jax.Array]:  # [B, N, D] and [D, V] -> [B, N] twice
    """The same from hidden states; large logits are computed for one piece of the row at a time."""
    kernel, pieces = _gathered(kernel, dtype), _pieces(targets, kernel)
    if pieces <= 1:  # 0: there are no targets
        return likelihood(logits_of(x, kernel, dtype, cap), targets)

    def of_piece(piece):
        x, targets = piece
        return likelihood(logits_of(x, kernel, dtype, cap), targets)

    losses = jax.lax.map(jax.checkpoint(of_piece), (_cut(x, pieces), _cut(targets, pieces)))
    nats, chosen = (_joined(each, targets.shape[1]) for each in losses)
    return nats, chosen


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def weighted_loss(
    x: jax.Array,  # [B, N, D]
    kernel: jax.Array,  # [D, V]
    targets: jax.Array,  # [B, N]
    weights: jax.Array,  # [B, N]
    dtype: str,
    cap: float | None = None,
) -> jax.Array:
    """The sum of weighted nats. Its gradient is computed in the same pass, since the weights are
    known: no logits are kept or computed twice."""
    return _in_one_pass(x, kernel, targets, weights, dtype, cap, False, False)[0]


def _in_one_pass(x, kernel, targets, weights, dtype, cap, differentiated, with_kernel):
    kernel, pieces = _gathered(kernel, dtype), max(1, _pieces(targets, kernel))

    def of_piece(sums, piece):
        x, targets, weights = piece
        rows, classes, weight = (
            x.reshape(-1, x.shape[-1]),
            targets.reshape(-1, 1),
            weights.reshape(-1, 1),
        )
        logits = logits_of(rows, kernel, dtype, cap)
        logsum = logsum_of(logits)[:, None]
        nats = logsum - jnp.take_along_axis(logits, classes, axis=-1)
        loss = sums[0] + jnp.sum(nats * weight)
        if not differentiated:
            return (loss, sums[1]), None
        right = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == classes
        slope = 1 if cap is None else 1 - (logits / cap) ** 2
        d_logits = ((jnp.exp(logits - logsum) - right) * slope * weight).astype(rows.dtype)
        d_rows = jnp.dot(d_logits, kernel.T, preferred_element_type=jnp.float32)
        d_rows = d_rows.astype(x.dtype).reshape(x.shape)
        if not with_kernel:
            return (loss, sums[1]), d_rows
        d_kernel = jnp.dot(rows.T, d_logits, preferred_element_type=jnp.float32)
        d_kernel = devices.cut(d_kernel, target.mesh_of_weights())
        return (loss, sums[1] + d_kernel), d_rows

    cut = tuple(_cut(each, pieces) for each in (x, targets, weights))
    zero = jnp.zeros(()), jnp.zeros(kernel.shape if with_kernel else ())
    if pieces > 1:
        (loss, d_kernel), d_x = jax.lax.scan(of_piece, zero, cut)
    else:
        (loss, d_kernel), d_x = of_piece(zero, tuple(each[0] for each in cut))
        d_x = None if d_x is None else d_x[None]
    return loss, None if d_x is None else _joined(d_x, targets.shape[1]), d_kernel


def logsum_of(logits: jax.Array) -> jax.Array:  # [N, V] -> [N]
    """Log-sums, on a GPU in one pass over the logits; on a CPU that takes twice as long."""
    if target.platform() != "gpu":
        return jax.nn.logsumexp(logits, axis=-1)

    def add(left, right):
        (a, a_sum), (b, b_sum) = left, right
        top = jnp.maximum(a, b)
        return top, a_sum * jnp.exp(a - top) + b_sum * jnp.exp(b - top)

    none = jnp.finfo(logits.dtype).min, jnp.zeros((), logits.dtype)
    top, total = jax.lax.reduce((logits, jnp.ones_like(logits)), none, add, (1,))
    return top + jnp.log(total)


def _forward(x, kernel, targets, weights, dtype, cap):
    loss, d_x, d_kernel = _in_one_pass(
        x.value, kernel.value, targets.value, weights.value, dtype, cap, True, kernel.perturbed
    )
    return loss, (d_x, d_kernel.astype(kernel.value.dtype) if kernel.perturbed else None)


def _backward(dtype, cap, gradients, d_loss):
    own = [None if g is None else (d_loss * g).astype(g.dtype) for g in gradients]
    return *own, None, None


weighted_loss.defvjp(_forward, _backward, symbolic_zeros=True)


def _gathered(kernel: jax.Array, dtype: str) -> jax.Array:
    return devices.whole(kernel.astype(dtype), target.mesh_of_weights())


def _pieces(targets: jax.Array, kernel: jax.Array) -> int:
    """Pieces of a row, a power of two."""
    rows = target.share_of_rows(targets.size)
    wanted = -(-rows * kernel.shape[1] // LOGITS[target.platform()])
    return min(1 << max(0, wanted - 1).bit_length(), targets.shape[1])


def _cut(a: jax.Array, pieces: int) -> jax.Array:  # [B, N, ...] -> [pieces, B, size, ...]
    """Rows are cut, not the batch, which may be sharded over devices."""
    size = -(-a.shape[1] // pieces)
    fill = [(0, 0), (0, size * pieces - a.shape[1])] + [(0, 0)] * (a.ndim - 2)
    return jnp.pad(a, fill).reshape(len(a), pieces, size, *a.shape[2:]).swapaxes(0, 1)


def _joined(a: jax.Array, length: int) -> jax.Array:  # [pieces, B, size, ...] -> [B, length, ...]
    return a.swapaxes(0, 1).reshape(a.shape[1], -1, *a.shape[3:])[:, :length]
