"""Attention by several calls of a kernel; the XLA implementation of jax.nn stands for cuDNN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posenc_jax
from posenc_jax import composition
from posenc_jax.attention import attend, kernels, several

L, T, DIMS = 32, 128, posenc_jax.Dims(4, 16, 64, 32)
BY_REGION = [("rope", name) for name in ("self_extend", "rerope", "leaky_rerope", "dca")]
BY_REGION += [("rope", name) for name in ("streaming", "lm_infinite:limit=48")]
BY_REGION += [("pope", name) for name in ("self_extend", "dca")]
BY_PIECE = [(name, "none") for name in ("t5", "fire", "fox", "relative", "alibi of documents")]
BY_PIECE += [("kerple_log", "window:size=40"), ("fire", "logn")]
WHOLE = [("rope with a sink", "none"), ("rope with a sink", "window:size=40")]
WHOLE += [("rope with a sink of tokens", "none")]
FEW = {
    ("rope", "self_extend"),
    ("pope", "dca"),
    ("fox", "none"),
    ("rope with a sink of tokens", "none"),
}


def with_logsums(q, k, v, bias, *, window, **options):
    """As cuDNN: the output in bfloat16, the log-sums in float32."""
    options |= dict(implementation="xla", return_residual=True)
    options |= dict(local_window_size=None if window is None else (window - 1, 0))
    exact = (x if x is None else x.astype(jnp.float32) for x in (q, k, v, bias))
    (out, _), (_, logsum) = (
        jax.nn.dot_product_attention(*given, **options) for given in ((q, k, v, bias), exact)
    )
    return out, logsum.swapaxes(1, 2)


@pytest.fixture
def gpu(monkeypatch):
    """Pretend to run on a GPU whose biases are materialised for 16 queries at a time."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(kernels, "CUDNN", "xla")
    monkeypatch.setattr(kernels, "with_logsums", with_logsums)
    monkeypatch.setattr(kernels, "MATERIALISED", 64)
    monkeypatch.setattr(several, "PIECE", 16 * DIMS.heads * T)


def built(name):
    plain_name = name.partition(" ")[0]
    options = {"sink": "token" if name.endswith("tokens") else True} if "sink" in name else {}
    encoding = posenc_jax.build(plain_name, DIMS, key=jax.random.key(1), **options)
    if options:
        encoding = jax.tree.map(lambda leaf: leaf + 0.5, encoding)
    segments = (jnp.arange(T)[None] >= jnp.array([[50], [90]])).astype(jnp.int32)
    return encoding, segments if name.endswith("of documents") else None


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        pytest.param(*each, marks=[] if each in FEW else pytest.mark.slow)
        for each in BY_REGION + BY_PIECE + WHOLE
    ],
)
def test_several_calls_are_attention_to_all_keys(name, extension, gpu, caplog):
    encoding, segments = built(name)
    (part,) = composition.parts(extension)
    encoding = posenc_jax.extend(part.name, encoding, T / L, **part.options)
    rng = np.random.default_rng(0)
    exact = [jnp.asarray(rng.normal(size=(2, T, 4, 16)), jnp.float32) for _ in range(3)]
    features = encoding.read(jnp.asarray(rng.normal(size=(2, T, 64)), jnp.float32))

    def out(how, q, k, v):
        options = dict(features=features, segments=segments, implementation=how)
        return attend(q, k, v, encoding, **options).astype(jnp.float32)

    given = [x.astype(jnp.bfloat16) for x in exact]
    right, plain = out("plain", *exact), out("plain", *given)
    ours = jax.jit(lambda *given: out("kernel", *given))(*given)
    assert not caplog.messages  # a kernel computed it
    assert np.abs(ours - right).mean() <= 3 * np.abs(plain - right).mean()

    def gradients(how):
        return jax.jit(jax.grad(lambda *given: jnp.sum(out(how, *given) ** 2), (0, 1, 2)))(*given)

    # jax has no gradient of a kernel's log-sums: no kernel computes what is differentiated.
    without = "plain" if encoding.plain_on_gpu else "blockwise"
    for one, other in zip(gradients("auto"), gradients(without), strict=True):
        np.testing.assert_array_equal(np.float32(one), np.float32(other))
    assert len(caplog.messages) == 1
    with pytest.raises(kernels.Unfit):
        gradients("kernel")


@pytest.mark.parametrize("name", ["relative", "dape", "fire"])
def test_what_a_gpu_computes_in_another_order_is_the_same(name, monkeypatch):
    """`relative` and DAPE by plain attention, DAPE's rows at once, FIRE's sums in parts."""
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(1))
    trained, fixed = posenc_jax.partition(encoding)
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(2, T, 4, 16)), jnp.float32) for _ in range(3))
    x = jnp.asarray(rng.normal(size=(2, T, 64)), jnp.float32)

    def gradients():
        def total(q, trained):
            whole = posenc_jax.combine(trained, fixed)
            return jnp.sum(attend(q, k, v, whole, features=whole.read(x)) ** 2)

        return jax.jit(jax.grad(total, (0, 1)))(q, trained)

    on_cpu = gradients()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for one, other in zip(*map(jax.tree.leaves, (gradients(), on_cpu)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5 * np.abs(other).max())


@pytest.fixture(autouse=True)
def unwarned():
    several._warn_once.cache_clear()
