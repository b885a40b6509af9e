"""GPU and TPU kernels: inputs, lowering and unsupported cases."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS

import posenc_jax
from posenc_jax.attention import attention, kernels, plain, several
from posenc_jax.encoding import Tokens

pytestmark = pytest.mark.sampled

B, H, T, K = 2, DIMS.heads, 128, DIMS.head_dim
QUICK = {"nope": 1, "rope": H, "pope": 1, "alibi": H, "t5": 1, "fox": 1, "relative": H}
BY_ROW = ("fox", "relative")  # each row has a bias of its own


def setting(name, dtype, groups=H, length=T):
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(5))
    positions = jnp.arange(length)
    rng = np.random.default_rng(1)
    q, k, v = (
        jnp.asarray(rng.normal(size=(B, heads, length, K)), dtype) for heads in (H, groups, groups)
    )
    tokens = Tokens(position=positions, contiguous=True)
    phase = encoding.phase(positions)
    return (q, k, v, encoding), {"q_tokens": tokens, "k_tokens": tokens, "phase": phase}


def inputs(length):
    """The inputs of a layer, from which some encodings read features."""
    x = np.random.default_rng(2).normal(size=(B, length, DIMS.width))
    return jnp.asarray(x, jnp.float32)


def with_features(encoding, x, places):
    features = encoding.read(x)
    sides = ("q_tokens", "k_tokens")
    return places | {side: places[side].replace(features=features) for side in sides}


def outputs_and_gradients(way, given, places, **options):
    q, k, v, encoding = given

    def loss(q, k, v, x):
        out = way(q, k, v, encoding, **with_features(encoding, x, places), **options)
        out = out[0] if way is plain else out  # without its log-sum
        return jnp.sum(out.astype(jnp.float32) ** 2), out

    gradient = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True))
    (_, out), gradients = gradient(q, k, v, inputs(q.shape[2]))
    return [np.asarray(x, np.float32) for x in (out, *gradients)]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        pytest.param(name, groups, marks=[] if QUICK.get(name) == groups else pytest.mark.slow)
        for name in ("nope", "rope", "pope", "xpos", "alibi", "t5", "kerple_log", "fire", *BY_ROW)
        for groups in (H, 1)
    ],
)
def test_the_cudnn_call_matches_plain_attention(name, groups, monkeypatch):
    """The XLA implementation of jax.nn replaces cuDNN in the same call."""
    monkeypatch.setattr(kernels, "CUDNN", "xla")
    given, places = setting(name, jnp.bfloat16, groups)
    exact = [x.astype(jnp.float32) for x in given[:3]]
    right = outputs_and_gradients(plain, (*exact, given[3]), places)
    ours = outputs_and_gradients(kernels.cudnn, given, places)
    theirs = outputs_and_gradients(plain, given, places)
    for a, b, c in zip(ours, theirs, right, strict=True):
        assert np.abs(a - c).mean() <= 3 * np.abs(b - c).mean()


@pytest.mark.slow
def test_the_cudnn_call_applies_a_window(monkeypatch):
    monkeypatch.setattr(kernels, "CUDNN", "xla")
    (q, k, v, encoding), places = setting("rope", jnp.bfloat16)
    given = q, k, v, encoding.windowed(20)
    ours, (right, _) = kernels.cudnn(*given, **places), plain(*given, **places)
    np.testing.assert_allclose(
        np.asarray(ours, np.float32), np.asarray(right, np.float32), atol=0.03
    )


def test_alibi_is_exact_at_30000_tokens():
    """Products of 30,000 positions and slopes that bfloat16 cannot represent."""
    dims = posenc_jax.Dims(6, K, 6 * K, 128)
    encoding = posenc_jax.build("alibi", dims, key=jax.random.key(0))
    zeros = jnp.zeros((1, 6, 30_000, K), jnp.bfloat16)
    q, k = kernels._with_slopes(zeros, zeros, encoding.slopes)
    rows = np.array([0, 255, 256, 29_999])
    product = np.asarray(q[0, :, 29_999], np.float64)[:, None] @ np.swapaxes(
        np.asarray(k[0][:, rows], np.float64), 1, 2
    )
    slopes = np.asarray(encoding.slopes, np.float64)
    np.testing.assert_allclose(product[:, 0], slopes[:, None] * rows, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "window", "groups"),
    [("nope", None, 1), ("rope", 40, H), ("pope", 40, 1), ("alibi", None, 1)],
)
def test_splash_attention_matches_plain_attention(name, groups, window):
    (q, k, v, encoding), places = setting(name, jnp.float32, groups)
    given = q, k, v, encoding.windowed(window)
    ours = outputs_and_gradients(kernels.splash, given, places, interpret=True)
    right = outputs_and_gradients(plain, given, places)
    for a, b in zip(ours, right, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3 * np.abs(b).max())


def test_log_sums_of_splash_attention_are_those_of_plain_attention():
    """Near and far keys are merged by them."""
    (q, k, v, encoding), places = setting("nope", jnp.float32)
    options = dict(window=40, return_residual=True, interpret=True)
    ours = kernels.call_splash(kernels.divided(q), k, v, **options)
    right = plain(q, k, v, encoding.windowed(40), **places)
    for a, b in zip(ours, right, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3 * np.abs(b).max())


@pytest.mark.slow
def test_splash_attention_separates_documents():
    given, places = setting("rope", jnp.float32)
    segments = jnp.broadcast_to((jnp.arange(T) >= 50).astype(jnp.int32), (B, T))
    for side in ("q_tokens", "k_tokens"):
        places[side] = places[side].replace(document=segments)
    ours = kernels.splash(*given, **places, interpret=True)
    np.testing.assert_allclose(ours, plain(*given, **places)[0], atol=1e-3)


@pytest.fixture
def pretend(monkeypatch):
    """Pretend to run on a platform, with cuDNN 9.10, which jax.nn requires."""
    from jax._src.cudnn import fused_attention_stablehlo as stablehlo

    def on(platform):
        monkeypatch.setattr(jax, "default_backend", lambda: platform)
        monkeypatch.setattr(stablehlo, "check_cudnn_version", lambda: 91_000)
        monkeypatch.setattr(jax, "device_count", lambda: 1)

    several._warn_once.cache_clear()
    return on


def lowered(name, platform, dtype, how="kernel", length=T):
    given, places = setting(name, dtype, length=length)
    gradient = jax.jit(jax.grad(functools.partial(loss_of, places, how), (0, 1, 2, 4)))
    traced = gradient.trace(*given, inputs(length))
    return traced.lower(lowering_platforms=(platform,)).as_text()


def loss_of(places, how, q, k, v, encoding, x):
    places = with_features(encoding, x, places)
    out = attention(q, k, v, encoding, implementation=how, **places)
    return jnp.sum(out.astype(jnp.float32))


@pytest.mark.parametrize(
    "name", ["nope", "rope", "pope", "alibi", "t5", "kerple_log", "fire", *BY_ROW]
)
def test_the_program_for_a_gpu_calls_cudnn_once_each_way(name, pretend):
    pretend("gpu")
    text = lowered(name, "cuda", jnp.bfloat16)
    calls = re.findall(r"@__cudnn\$fmha\w*", text)
    assert [call.endswith("Backward") for call in sorted(calls)] == [False, True]


@pytest.mark.parametrize("name", BY_ROW)
def test_a_bias_of_each_row_is_not_kept_for_the_backward_pass(name, pretend):
    pretend("gpu")
    given, places = setting(name, jnp.bfloat16)
    loss = functools.partial(loss_of, places, "kernel")
    kept = jax.eval_shape(lambda *given: jax.vjp(loss, *given)[1], *given, inputs(T))
    assert max(leaf.size for leaf in jax.tree.leaves(kept)) < B * H * T * T


@pytest.mark.parametrize("name", ["nope", "rope", "pope", "alibi"])
def test_the_program_for_a_tpu_calls_splash_attention(name, pretend):
    pretend("tpu")
    assert "tpu_custom_call" in lowered(name, "tpu", jnp.bfloat16)


@pytest.mark.parametrize(
    ("name", "platform", "dtype", "length", "reason"),
    [
        ("rope", "gpu", jnp.float32, T, "bfloat16"),
        ("t5", "tpu", jnp.bfloat16, T, "no bias"),
        ("rope", "tpu", jnp.bfloat16, 100, "multiple of 128"),
        ("rope", "tpu", jnp.float32, T, "bfloat16"),
        ("rope", "gpu", jnp.bfloat16, 101, "odd number of tokens, 101"),
        ("t5", "gpu", jnp.bfloat16, 8192, "4096 keys"),
    ],
)
def test_an_unsupported_kernel_is_reported_once(
    name, platform, dtype, length, reason, pretend, caplog
):
    pretend(platform)
    lowering = {"gpu": "cuda"}.get(platform, platform)
    for _ in range(2):
        text = lowered(name, lowering, dtype, how="auto", length=length)
    assert "custom_call" not in text or "cudnn" not in text
    assert "tpu_custom_call" not in text
    assert len(caplog.messages) == 1
    assert reason in caplog.text
    with pytest.raises(ValueError, match=reason):
        lowered(name, lowering, dtype, how="kernel", length=length)


def test_missing_cudnn_is_reported(pretend, caplog, monkeypatch):
    from jax._src.cudnn import fused_attention_stablehlo as stablehlo

    pretend("gpu")

    def missing():
        raise RuntimeError("cuDNN is not detected.")

    monkeypatch.setattr(stablehlo, "check_cudnn_version", missing)
    lowered("rope", "cuda", jnp.bfloat16, how="auto")
    assert "cuDNN is not detected" in caplog.text


def test_what_kernels_cannot_compute_is_refused(monkeypatch):
    monkeypatch.setattr(kernels, "PIECE", B * H * T * T - 1)
    (q, k, v, rope), places = setting("rope", jnp.bfloat16)
    chunked = posenc_jax.build("nope", DIMS).replace(chunk=7)
    own = posenc_jax.build("stick_breaking", DIMS)
    fox = posenc_jax.build("fox", DIMS, key=jax.random.key(5))
    by_kernel = functools.partial(attention, implementation="kernel")
    for way, encoding, reason in (
        (kernels.splash, chunked, "chunks that do not see each other"),
        (kernels.cudnn, posenc_jax.extend("dca", rope, 2.0), "keys at several positions"),
        (kernels.cudnn, fox, f"{B * H * T * T - 1:,} numbers"),
        (by_kernel, own, "the own attention of encoding 'stick_breaking'"),
        (by_kernel, rope, "needs a GPU or a TPU, but this process runs on cpu"),
    ):
        expected = ValueError if way is by_kernel else kernels.Unfit
        with pytest.raises(expected, match=reason):
            way(q, k, v, encoding, **places)
