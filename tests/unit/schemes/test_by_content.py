"""Encodings by the layer's input: forget gates, selective RoPE and Inkling's relative bias."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import (
    B,
    H,
    K,
    build,
    call,
    compiled,
    content,
    mixed,
    qkv,
    scores_of,
    turned,
    visible,
)
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend, blockwise
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.schemes import fox
from posenc_jax.schemes.ssmax import temperature
from posenc_jax.testing import equations

pytestmark = pytest.mark.sampled

LAYERS = Dims(H, K, DIMS.width, L, layers=3)


# Forget gates


def test_gate_sums_are_exact_over_16000_tokens():
    """Over 16,000 gates near 1/2 a plain float32 sum would be off by 1e-3."""
    length, heads = 16_000, 1
    dims = Dims(heads, 4, 1, length)
    encoding = build("fox", dims).replace(kernel=jnp.ones((1, 1)))
    rng = np.random.default_rng(0)
    gates = np.float32(rng.normal(size=length))
    q, k, v = (np.float32(rng.normal(size=(length, 4))) for _ in range(3))
    features = jax.jit(encoding.read)(gates[None, :, None])
    row = Tokens(position=jnp.arange(length), features=features)
    last = jax.tree.map(lambda x: x[..., -50:] if x.ndim == 1 else x[:, -50:], row)

    def loss(x, features):
        sides = last.replace(features=jax.tree.map(lambda f: f[:, -50:], features))
        heads_major = (jnp.asarray(x)[None, None] for x in (q[-50:], k, v))
        out, _ = blockwise(*heads_major, encoding, sides, row.replace(features=features))
        return out

    out = jax.jit(loss)(gates, features)[0, 0]
    steps = -np.log1p(np.exp(-np.float64(gates)))
    total = np.cumsum(steps)
    scores = np.float64(q[-50:]) @ np.float64(k).T / 2 + total[-50:, None] - total[None, :]
    scores = np.where(np.arange(length)[None] <= np.arange(length)[-50:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ np.float64(v)
    np.testing.assert_allclose(out, expected, atol=2e-5)


def test_fixed_gates_decay_to_1_over_e_after_their_time():
    encoding = build("fox", gate="fixed")
    times = np.exp(np.linspace(0, np.log(L), H))
    logit = -np.log(np.expm1(1 / times))  # gate logit
    slope = np.log1p(np.exp(-logit))  # -log sigmoid
    np.testing.assert_allclose(slope, 1 / times)
    expected = -slope[:, None] * np.arange(40)
    np.testing.assert_allclose(encoding.curve(jnp.arange(40)), expected, rtol=1e-6)
    np.testing.assert_allclose(encoding.slope(), 1 / times, rtol=1e-6)
    assert not any(jax.tree.leaves(posenc_jax.trained_mask(encoding)))


def test_bias_only_gates_equal_constant_gates():
    encoding = build("fox", gate="bias_only").replace(shift=jnp.array([0.0, 1.0, -3.0, 5.0]))
    bias = call(encoding, "bias", np.arange(40), np.arange(40))
    expected = jax.jit(fox.bias)(np.repeat(np.asarray(encoding.shift)[:, None], 40, axis=1))
    seen = np.tri(40, dtype=bool)
    np.testing.assert_allclose(np.where(seen, bias, 0), np.where(seen, expected, 0), 1e-6)


@pytest.mark.parametrize("start", [None, 0.0, 5.0])
def test_gates_start_at_bias_init(start):
    for gate in ("full", "bias_only"):
        encoding = build("fox", gate=gate, bias_init=start)
        np.testing.assert_array_equal(encoding.shift, np.full(H, start or 0.0, np.float32))
    layers = build("fox", LAYERS, gate="bias_only", bias_init=start)
    assert layers.layers == 3 and layers.shift.shape == (3, H)
    wrapped = build("randomized", LAYERS, inner="fox")
    assert wrapped.layers == 3 and wrapped.inner.layers is None


@pytest.mark.parametrize("inner", ["nope", "rope"])
@pytest.mark.parametrize(
    ("gate", "kind"), [("full", "Sums"), ("bias_only", "Curve"), ("fixed", "Curve")]
)
def test_gates_use_the_fast_paths(gate, kind, inner):
    encoding = build("fox", inner=inner, gate=gate)
    features = call(encoding, "read", content(B, 8, DIMS.width, seed=1))
    row = Tokens(position=jnp.arange(8), contiguous=True, features=features)
    module = import_module(blockwise.__module__)
    assert type(module._bias(encoding, H, 8, row, row)).__name__ == kind


# Selective RoPE


def selective(dims=DIMS, **options):
    return build("selective_rope", dims, **options)


def sum_of(features):
    return np.asarray(features["sum"] + features["rest"])


@jax.jit
def read(encoding, x, before=None, document=None):
    return encoding.read(x, before, document)


def steps_by_hand(encoding, x):  # [B, T, D] -> [B, T, H, K/2] in float64
    x = np.asarray(x, np.float64).reshape(*x.shape[:2], H, -1)
    x = (x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)).reshape(*x.shape[:2], -1)
    phi = np.einsum("btr,rhp->bthp", x @ np.float64(encoding.w1), np.float64(encoding.w2))
    steps = np.zeros_like(phi)
    for back, weights in enumerate(np.float64(encoding.convolution)):
        steps[:, back:] += phi[:, : phi.shape[1] - back] * weights
    if encoding.beta is not None:
        steps += np.exp(np.float64(encoding.beta))
    if encoding.gate_kernel is not None:
        gate = x @ np.float64(encoding.gate_kernel) + np.float64(encoding.gate_shift)
        steps *= 1 / (1 + np.exp(-gate))[..., None]
    return steps


def test_constant_steps_of_one_are_rope():
    encoding, (q, k, v) = selective(bias=True), qkv(70, groups=2)
    encoding = encoding.replace(w2=jnp.zeros_like(encoding.w2))
    features = read(encoding, content(B, 70, DIMS.width))
    out = compiled(q, k, v, encoding, window=9, features=features)
    expected = compiled(q, k, v, build("rope", base=500_000.0), window=9)
    np.testing.assert_allclose(out, expected, atol=3e-6)


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"gate": True, "rank": 3}], ids=str)
def test_scores_turn_by_the_steps_between_key_and_query(options):
    encoding, (q, k, v) = selective(**options, base=50.0), qkv(40, groups=2)
    # Steps of about one, so that angles matter.
    encoding = encoding.replace(w2=8 * encoding.w2)
    x = content(B, 40, DIMS.width)
    out = jax.jit(lambda: attend(q, k, v, encoding, features=read(encoding, x)))()
    total = np.cumsum(steps_by_hand(encoding, x), axis=1)
    assert total.std() > 0.8
    angle = total * 50.0 ** (-np.arange(0, K, 2) / K)
    scores = scores_of(turned(q, angle), turned(np.repeat(k, 2, axis=2), angle))
    expected = mixed(scores, visible(40, 40), v)
    np.testing.assert_allclose(out, expected, atol=5e-6)


def test_steps_do_not_cross_documents():
    """Each document has the steps that it has alone, whatever stands before it."""
    encoding, x = selective(), content(B, 20, DIMS.width)
    document = jnp.asarray([[1] * 7 + [2] * 2 + [3] * 11, [1] * 19 + [2]])
    total = sum_of(read(encoding, x, None, document))
    for row, first, last in ((0, 0, 7), (0, 7, 9), (0, 9, 20), (1, 0, 19), (1, 19, 20)):
        alone = steps_by_hand(encoding, x[row : row + 1, first:last])[0]
        inside = np.diff(total[row, first:last], axis=0)
        np.testing.assert_allclose(inside, alone[1:], atol=1e-6)


def test_random_steps_are_those_of_the_place_in_the_document():
    encoding, x = selective(steps="random", seed=3), content(B, 20, DIMS.width)
    document = jnp.asarray([[1] * 7 + [2] * 13, [1] * 20])
    packed = sum_of(read(encoding, x, None, document))
    steps = np.diff(sum_of(read(encoding, x)), axis=1, prepend=0)
    np.testing.assert_array_equal(steps[0], steps[1])
    inside = np.diff(packed, axis=1, prepend=0)
    np.testing.assert_allclose(inside[0], np.concatenate([steps[0, :7], steps[0, :13]]), atol=1e-5)
    before, pieces = None, []
    for piece in (slice(0, 4), slice(4, 5), slice(5, 20)):
        pieces.append(read(encoding, x[:, piece], before, document[:, piece]))
        before = jax.tree.map(lambda leaf: leaf[:, -1:], pieces[-1])
    joined = np.concatenate([sum_of(piece) for piece in pieces], axis=1)
    np.testing.assert_allclose(joined, packed, atol=1e-5)
    far = read(selective(steps="random"), content(1, 4_000, DIMS.width))
    drawn = np.diff(sum_of(far)[0], axis=0).ravel()
    assert abs(drawn.mean()) < 0.02 and abs(drawn.std() - 1) < 0.02
    assert not np.allclose(steps[0], np.asarray(far["sum"])[0, :20])  # another seed


def test_angles_are_exact_after_many_tokens():
    """After 20,000 steps of about one a float32 sum alone would be off by up to 1e-3."""
    encoding, x = selective(bias=True), content(1, 20_000, DIMS.width)
    features = jax.tree.map(lambda leaf: leaf[:, -50:], read(encoding, x))
    cos, sin = encoding._cos_sin(features)
    total = np.cumsum(steps_by_hand(encoding, x), axis=1)[:, -50:]
    angle = (total * np.float64(encoding.inv_freq)).swapaxes(1, 2)
    assert total.max() > 10_000
    np.testing.assert_allclose(cos, np.cos(angle), atol=5e-5)
    np.testing.assert_allclose(sin, np.sin(angle), atol=5e-5)


def test_selective_rope_computes_attention_as_the_caller_chose():
    encoding, rows = selective(), content(1, 200, H * K).reshape(1, 200, H, K)
    features = read(encoding, content(1, 200, DIMS.width))

    def operations(implementation):
        options = {"features": features, "implementation": implementation}
        jaxpr = jax.make_jaxpr(lambda x: attend(x, x, x, encoding, **options))(rows)
        return {operation.primitive.name for operation in equations(jaxpr.jaxpr)}

    assert "custom_vjp_call" in operations("blockwise")
    assert "custom_vjp_call" not in operations("plain")


# Inkling's relative bias


def row(length, features, **fields):
    return Tokens(np.arange(length), features=features, **fields)


@pytest.mark.parametrize("nearest", [0, 3, 9, 10, 25, 1_000])
def test_the_skew_equals_the_gather_at_every_distance(nearest):
    encoding = build("relative", extent=10)
    features = np.asarray(call(encoding, "read", content(B, 7, DIMS.width))["rows"])
    q = Tokens(nearest + np.arange(7), features={"rows": features})
    k = Tokens(np.arange(5), features={"rows": features[:, :5]})
    expected = np.asarray(call(encoding, "bias", q, k))
    actual = call(encoding, "bias", q.replace(contiguous=True), k.replace(contiguous=True))
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert np.any(expected != 0) == (nearest < 14)


def test_bare_positions_have_no_bias_and_tokens_need_features():
    encoding = build("relative")
    assert encoding.bias(jnp.arange(3), jnp.arange(3)) is None
    with pytest.raises(ValueError, match=r"features=encoding.read\(x\), x the layer's input"):
        encoding.bias(row(3, None), row(3, None))


def test_blocks_of_whole_rows_gather_nothing():
    encoding, (q, k, v) = build("relative"), qkv(300)
    x = content(B, 300, DIMS.width)

    def loss(encoding):
        return jnp.sum(attend(q, k, v, encoding, features=encoding.read(x)))

    found = equations(jax.make_jaxpr(jax.grad(loss))(encoding).jaxpr)
    names = ("gather", "scatter-add")  # of profiles alone, not of every query and key
    sizes = [e.outvars[0].aval.size for e in found if e.primitive.name in names]
    assert sizes and max(sizes) < 128 * 128


@pytest.mark.parametrize("inner", ["relative", "alibi"])
def test_inklings_temperature_scales_the_bias_too(inner):
    encoding = build("ssmax", kind="inkling", inner=inner, a=0.5)
    length = 3 * L
    tokens = row(length, call(encoding, "read", content(B, length, DIMS.width)))
    tau = np.asarray(temperature("inkling", np.arange(length), L, 0.5))[:, None]
    expected = np.asarray(call(encoding.inner, "bias", tokens, tokens)) * tau
    np.testing.assert_allclose(call(encoding, "bias", tokens, tokens), expected, rtol=1e-6)
    assert tau.max() > 1.1


def test_biases_start_at_similar_scale_at_every_distance():
    start = build("relative", Dims(64, 8, 512, 64))
    tokens = row(64, call(start, "read", content(1, 64, 512)))
    assert 0.15 < np.std(np.asarray(call(start, "bias", tokens, tokens))[..., -1, :]) < 0.25
