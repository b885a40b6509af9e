"""Properties of every encoding in posenc_jax/schemes, tested without listing them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import H, K, build, content, qkv
from sizes import DIMS, L

from posenc_jax import testing
from posenc_jax.attention import attend, attention, phase_between, rotate
from posenc_jax.encoding import Dims, DistanceBias, Tokens
from posenc_jax.testing import equations

pytestmark = pytest.mark.sampled


@pytest.mark.parametrize("check", testing.PROPERTIES, ids=lambda check: check.__name__)
def test_every_encoding_has(check, encoding):
    if check is testing.word_order_reaches_the_last_row and encoding.name == "nope":
        with pytest.raises(AssertionError, match="change by"):
            check(encoding)
    else:
        check(encoding)


@pytest.mark.slow
def test_gradients_of_rows_that_are_not_packed_reach_exactly_the_trained_fields(encoding):
    testing.gradients_reach_exactly_the_trained_fields(encoding, packed=False)


def score(encoding, q, k, q_position, k_position):
    """Return the unmasked logits of one query and one key per head."""
    here, there = jnp.array([q_position]), jnp.array([k_position])
    phase = phase_between(encoding, here, there)
    if phase is not None:
        q = rotate(q, phase.q_cos, phase.q_sin, phase.layout)
        k = rotate(k, phase.k_cos, phase.k_sin, phase.layout)
    scores = jnp.einsum("bhqk,bhsk->hqs", q, k) / DIMS.head_dim**0.5
    bias = encoding.bias(here, there)
    return (scores if bias is None else scores + bias)[:, 0, 0]


@pytest.mark.parametrize(
    ("start", "tolerance"), [(0, 2e-6), (2_000, 2e-6), (100_000, 1e-5), (131_072, 1e-5)]
)
def test_scores_depend_on_distance_alone(encoding, start, tolerance):
    relative = isinstance(encoding, DistanceBias) or encoding.phase(jnp.arange(2)) is not None
    if not relative or encoding.name == "fope":
        pytest.skip("not an encoding of distance alone")
    q, k = (x.swapaxes(1, 2)[:1] for x in qkv(1)[:2])
    for distance in (0, 1, 7, 500, 3_000):
        expected = score(encoding, q, k, distance, 0)
        moved = score(encoding, q, k, start + distance, start)
        np.testing.assert_allclose(moved, expected, atol=tolerance, rtol=tolerance)


def test_encodings_by_content_count_in_float32_in_bfloat16():
    summed = {"exp", "log1p", "logistic", "cumsum", "cumlogsumexp", "reduce_window_sum"}
    for name in ("cope", "fox", "selective_rope", "stick_breaking"):
        encoding = build(name)
        low = [x.astype(jnp.bfloat16) for x in (*qkv(40), content(2, 40, DIMS.width))]

        def run(q, k, v, x, encoding=encoding):
            features = encoding.read(x)
            assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(features))
            return attend(q, k, v, encoding, features=features)

        out, exact = jax.jit(run)(*low), jax.jit(run)(*(x.astype(jnp.float32) for x in low))
        assert out.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.float32(out), exact, atol=0.02)
        slope = jax.make_jaxpr(jax.grad(lambda *x: run(*x).sum().astype(float)))(*low)  # noqa: B023
        found = [e for e in equations(slope.jaxpr) if e.primitive.name in summed]
        assert found and all(e.outvars[0].aval.dtype == jnp.float32 for e in found)


def test_keys_of_a_ring_are_sorted():
    """A cache with a window holds its keys from any place on."""
    order = jnp.array([18, 19, 20, 12, 13, 14, 15, 16, 17])
    sides = Tokens(jnp.array([20]), order=jnp.array([20])), Tokens(order, order=order)
    q, k, v = (x.swapaxes(1, 2) for x in qkv(1, 9))
    for name in ("cope", "stick_breaking"):
        encoding = jax.tree.map(
            lambda leaf: leaf + jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), build(name)
        ).windowed(9)
        out = jax.jit(lambda *x: attention(*x, encoding, *sides))(q, k, v)  # noqa: B023
        rows = np.argsort(order)
        expected = attend(*(x.swapaxes(1, 2) for x in (q, k[:, :, rows], v[:, :, rows])), encoding)
        np.testing.assert_allclose(out.swapaxes(1, 2), expected, atol=2e-6)


BY_LAYER = [  # and the fields that are stacked
    ("cope", {"npos": 5}, {"table": (5, K)}),
    ("relative", {"rank": 5}, {"kernel": (DIMS.width, H, 5), "profiles": (5, L)}),
    ("dape", {"inner": "rope", "units": 7}, {"w1": (H, 7), "w2": (7, H)}),
    ("dape", {"inner": "kerple_log", "units": 7}, {"w1": (2 * H, 7), "w2": (7, H)}),
    ("dape", {"inner": "fox", "units": 7}, {"w1": (2 * H, 7), "w2": (7, H)}),
    ("fox", {}, {"kernel": (DIMS.width, H)}),
    ("rope", {"sink": True}, {"logit": (H,)}),
    ("t5", {"sink": True}, {"logit": (H,)}),
    ("hybrid", {"sink": True, "pattern": "local,global"}, {"logit": (H,)}),
    ("fox", {"sink": True}, {"logit": (H,)}),
    ("fox", {"sink": "token"}, {"kernel": (DIMS.width, H)}),
    ("ssmax", {"inner": "t5", "bias": True}, {"scale": (H,), "shift": (H,)}),
    ("selective_rope", {"gate": True, "bias": True}, {"w2": (16, H, K // 2)}),
]


TWO = Dims(H, K, DIMS.width, L, layers=2)


def test_each_layer_has_its_own_arrays():
    for name, options, shapes in BY_LAYER:
        encoding = build(name, TWO, **options)
        assert encoding.depth == 2
        for field, shape in shapes.items():
            array = getattr(encoding, field)
            assert array.shape == (2, *shape)
            assert getattr(encoding.layer(1), field).shape == shape
            constant = jnp.all(array == array.flatten()[0])
            assert constant or jnp.any(array[0] != array[1])


@pytest.mark.parametrize(("name", "options", "shapes"), BY_LAYER, ids=str)
def test_a_model_reads_the_arrays_of_each_layer(
    name, options, shapes, make_model, make_tokens, forward, drawn
):
    encoding, tokens = drawn(build(name, TWO, **options)), make_tokens(L)
    scanned, written = (forward(make_model(scan=scan), tokens, encoding) for scan in (True, False))
    np.testing.assert_allclose(scanned, written, atol=1e-5)
    swapped = encoding.replace(**{field: getattr(encoding, field)[::-1] for field in shapes})
    assert jnp.any(jnp.abs(forward(make_model(), tokens, swapped) - scanned) > 1e-4)
