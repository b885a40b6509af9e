"""Compare attention in bfloat16, forward and gradient, with plain attention in float32.

For every encoding: the kernel that `auto` takes, or why it takes none; errors of that kernel, of
blockwise and of plain bfloat16 attention, all from the same bfloat16 inputs; and the speed-up over
plain attention and over jax.nn with the bias laid out. Rotary extensions are one program with other
numbers, so only their errors are measured.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import posenc_jax
from benchmarks.gpu.plans import Plan
from benchmarks.timing import in_turns
from posenc_jax import extensions, schemes
from posenc_jax.attention import attend
from posenc_jax.layers import overrides

SCALE = 4  # of extensions: length over the length the encoding was built for
# For extensions whose name alone is not enough.
OPTIONS = {"abf": {"base": 500_000.0}, "temperature": {"factor": 1.25}}


def measurements(plan: Plan) -> dict[str, Callable[[], dict]]:
    parts = {}
    names = plan.kernel_encodings or schemes.names()
    for length in plan.kernel_lengths:
        for name in names:
            parts[f"{name}@{length}"] = functools.partial(encoding_at, plan, name, length)
        rope = built(plan, "rope", length)
        for name in plan.kernel_extensions or extensions.fitting(rope):
            if name != "none":
                extended = functools.partial(extension_at, plan, name, length)
                parts[f"rope+{name}@{length}"] = extended
    return parts


def encoding_at(plan: Plan, name: str, length: int) -> dict:
    encoding = built(plan, name, length)
    given = inputs(plan, length)
    taken, why_not = kernel_of(encoding, given)
    exact = reference(encoding, given)
    ways = {"plain": "plain", "blockwise": "blockwise"} | ({taken: "kernel"} if taken else {})
    values, calls = {"taken": taken or "blockwise", "why_not": why_not}, {}
    for way, implementation in ways.items():
        run = gradient(implementation, *given, encoding)
        values |= {f"{way}_{what}": error for what, error in errors(run(), exact).items()}
        calls[way] = run
    if has_jax_nn(encoding):
        run = gradient("jax.nn", *given, encoding)
        calls["jax.nn"] = run
        run()
    times = in_turns(calls, plan.seconds, least=3)
    for way, seconds in times.items():
        values[f"{way}_ms"] = 1e3 * float(np.median(seconds))
    return values


def extension_at(plan: Plan, name: str, length: int) -> dict:
    plain = built(plan, "rope", length)
    options = OPTIONS | {"longrope": {"lambdas": (1.0,) * plain.inv_freq.size}}
    encoding = posenc_jax.extend(name, plain, float(SCALE), **options.get(name, {}))
    given = inputs(plan, length)
    taken, why_not = kernel_of(encoding, given)
    exact = reference(encoding, given)
    values = {"taken": taken or "blockwise", "why_not": why_not}
    for way, implementation in ((taken or "blockwise", "auto"), ("plain", "plain")):
        off = errors(gradient(implementation, *given, encoding)(), exact)
        values |= {f"{way}_{what}": error for what, error in off.items()}
    return values


def built(plan: Plan, name: str, length: int) -> posenc_jax.Encoding:
    """The encoding; of layers that differ the first."""
    _, heads, size = plan.attention
    dims = posenc_jax.Dims(heads, size, heads * size, length // SCALE)
    if name == "learned":
        dims = posenc_jax.Dims(heads, size, heads * size, length)
    return posenc_jax.build(name, dims, key=jax.random.key(1)).layer(0)


def features_of(encoding, q):
    """Features of a layer's input: the same bfloat16 numbers in any type."""
    batch, length = q.shape[:2]
    shape = batch, length, encoding.dims.width
    return encoding.read(jax.random.normal(jax.random.key(2), shape, jnp.bfloat16).astype(q.dtype))


def inputs(plan: Plan, length: int):
    """q, k, v and a cotangent, in bfloat16."""
    batch, heads, size = plan.attention
    keys = jax.random.split(jax.random.key(0), 4)
    draw = [jax.random.normal(key, (batch, length, heads, size)) for key in keys]
    return tuple(x.astype(jnp.bfloat16) for x in draw)


def kernel_of(encoding, given) -> tuple[str, str]:
    """The platform's kernel if it takes this encoding, else the reason."""
    q, k, v, _ = given
    try:
        jax.eval_shape(lambda: attended("kernel", q, k, v, encoding))
    except ValueError as reason:
        return "", str(reason)
    return {"gpu": "cudnn", "tpu": "splash"}[jax.default_backend()], ""


def gradient(implementation: str, q, k, v, cotangent, encoding):
    """A call that computes the output and every gradient, and waits for them."""
    trained, fixed = posenc_jax.partition(encoding)

    def run():
        return jax.block_until_ready(_gradient(implementation, q, k, v, cotangent, trained, fixed))

    return run


@functools.partial(jax.jit, static_argnums=0)
def _gradient(implementation, q, k, v, cotangent, trained, fixed):
    def loss(q, k, v, trained):
        encoding = posenc_jax.combine(trained, fixed)
        if implementation == "jax.nn":
            out = by_jax_nn(q, k, v, encoding)
        else:
            out = attended(implementation, q, k, v, encoding)
        return jnp.sum(out.astype(jnp.float32) * cotangent.astype(jnp.float32)), out

    gradients, out = jax.grad(loss, (0, 1, 2, 3), has_aux=True)(q, k, v, trained)
    return out, gradients


def attended(implementation: str, q, k, v, encoding):
    features = features_of(encoding, q)
    return attend(q, k, v, encoding, features=features, implementation=implementation)


def has_jax_nn(encoding) -> bool:
    """True if the encoding has no hooks beyond a bias by position."""
    return not overrides(encoding, "phase") and not overrides(encoding, "read")


def by_jax_nn(q, k, v, encoding):
    """Attention by jax.nn as it comes, with a bias [1, H, T, T] or none."""
    positions = jnp.arange(q.shape[1])
    bias = encoding.bias(positions, positions)
    bias = None if bias is None else bias[None].astype(q.dtype)
    return jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=True)


def reference(encoding, given):
    """Plain attention in float32 with exact products, from the same bfloat16 numbers."""
    with jax.default_matmul_precision("highest"):
        return gradient("plain", *(x.astype(jnp.float32) for x in given), encoding)()


def errors(measured, exact) -> dict[str, float]:
    """The largest error of the output over its largest entry, and relative norms of gradients."""
    (out, gradients), (true_out, true_gradients) = jax.device_get((measured, exact))
    out, true_out = np.float64(out), np.float64(true_out)
    pairs = list(zip(jax.tree.leaves(gradients), jax.tree.leaves(true_gradients), strict=True))
    relative = [
        float(np.linalg.norm(np.float64(a) - b) / max(np.linalg.norm(np.float64(b)), 1e-30))
        for a, b in pairs
        if np.any(b)
    ]
    return {
        "forward_error": float(np.abs(out - true_out).max() / np.abs(true_out).max()),
        "gradient_error": max(relative),
    }
