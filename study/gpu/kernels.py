"""Attention in bfloat16, forward and gradient, against plain attention in float32.

Every encoding is checked by blocks and by the kernel that `auto` takes, and timed beside plain
attention. A larger error than three times that of plain attention in bfloat16 is a failure.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import posenc_jax
from benchmarks.timing import in_turns
from posenc_jax import schemes
from posenc_jax.attention import attend
from posenc_jax.layers import overrides

ALLOWED = 3.0  # times the error of plain attention
LEAST = 0.01  # an error that is always allowed
BY_ROW = ("fox", "relative")  # whose gradient comes through a bias of each row
# The backward pass subtracts sums of rounded outputs, which do not cancel in FIRE's sums.
OF_ROUNDING = {"fire": 0.02}


def measurements(dry: bool) -> dict[str, Callable[[], dict]]:
    batch, heads, size, length = (1, 2, 8, 64) if dry else (4, 12, 64, 1024)
    rows = dict.fromkeys((*BY_ROW, *schemes.names()), [batch]) | {
        "rope": [batch, 8 * batch, 32 * batch]
    }
    seconds = 0.0 if dry else 1.0
    return {
        f"{name}@{length}" + (f"x{count}" if count > batch else ""): functools.partial(
            measure, name, (count, length, heads, size), seconds
        )
        for name, counts in rows.items()
        for count in counts
    }


def measure(name: str, shape: tuple[int, ...], seconds: float) -> dict:
    encoding = built(name, shape)
    draw = [jax.random.normal(key, shape) for key in jax.random.split(jax.random.key(0), 4)]
    given = [x.astype(jnp.bfloat16) for x in draw]
    kernel, reason = kernel_of(encoding, *given[:3])
    with jax.default_matmul_precision("highest"):
        exact = gradient("plain", *(x.astype(jnp.float32) for x in given), encoding)()
    own = overrides(encoding, "attend")
    ways = {"plain": "plain"} | ({} if own else {"blockwise": "blockwise"})
    ways |= {kernel: "kernel"} if kernel else {}
    calls = {way: gradient(how, *given, encoding) for way, how in ways.items()}
    off = {way: errors(call(), exact) for way, call in calls.items()}
    values = {"taken": kernel or ("its own" if own else "blockwise"), "no_kernel_because": reason}
    for way, (forward, backward) in off.items():
        values |= {f"{way}_error": forward, f"{way}_gradient_error": backward}
    for way in set(off) - {"plain"}:
        for error, plain_error in zip(off[way], off["plain"], strict=True):
            if not error <= max(OF_ROUNDING.get(name, LEAST), ALLOWED * plain_error):
                raise AssertionError(f"{way}: error {error:.3g}, plain attention {plain_error:.3g}")
    times = in_turns(calls, seconds, least=3)
    return values | {f"{way}_ms": 1e3 * float(np.median(taken)) for way, taken in times.items()}


def built(name: str, shape: tuple[int, ...]) -> posenc_jax.Encoding:
    """The encoding; the first layer if layers differ."""
    _, length, heads, size = shape
    trained = length if name == "learned" else length // 4
    dims = posenc_jax.Dims(heads, size, heads * size, trained)
    return posenc_jax.build(name, dims, key=jax.random.key(1)).layer(0)


def kernel_of(encoding, q, k, v) -> tuple[str, str]:
    """The platform's kernel if it also computes the gradient of this encoding, or the reason."""

    def loss(q):
        return jnp.sum(attended("kernel", q, k, v, encoding).astype(jnp.float32))

    try:
        jax.eval_shape(jax.grad(loss), q)
    except ValueError as reason:
        return "", str(reason)
    return {"gpu": "cudnn", "tpu": "splash"}[jax.default_backend()], ""


def gradient(implementation: str, q, k, v, cotangent, encoding):
    """A call that computes the output and all gradients, and waits for them."""
    trained, fixed = posenc_jax.partition(encoding)

    @jax.jit
    def compute(q, k, v, trained):
        def loss(q, k, v, trained):
            out = attended(implementation, q, k, v, posenc_jax.combine(trained, fixed))
            return jnp.sum(out.astype(jnp.float32) * cotangent.astype(jnp.float32)), out

        gradients, out = jax.grad(loss, (0, 1, 2, 3), has_aux=True)(q, k, v, trained)
        return out, gradients

    return lambda: jax.block_until_ready(compute(q, k, v, trained))


def attended(implementation: str, q, k, v, encoding):
    shape = *q.shape[:2], encoding.dims.width
    x = jax.random.normal(jax.random.key(2), shape, jnp.bfloat16).astype(q.dtype)
    x, row = posenc_jax.place(x, encoding, None)
    return attend(q, k, v, encoding, row, features=encoding.read(x), implementation=implementation)


def errors(measured, exact) -> tuple[float, float]:
    """Largest error of the output over its largest entry; largest relative norm of the error of a
    gradient, that of q, of k, of v, or of all parameters together."""
    (out, gradients), (true_out, true_gradients) = jax.device_get((measured, exact))
    out, true_out = np.float64(out), np.float64(true_out)
    pairs = [(flat(a), flat(b)) for a, b in zip(gradients, true_gradients, strict=True)]
    norm = np.linalg.norm
    relative = [norm(a - b) / norm(b) for a, b in pairs if np.any(b)]
    return float(np.abs(out - true_out).max() / np.abs(true_out).max()), float(max(relative))


def flat(tree) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(np.float64(x).ravel() for x in jax.tree.leaves(tree))])
