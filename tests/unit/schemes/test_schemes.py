"""Properties of every encoding in posenc_jax/schemes, tested without listing them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import H, K, build, content, qkv
from jaxprs import equations
from sizes import DIMS, L

from posenc_jax.attention import attend, attention, phase_between, rotate
from posenc_jax.encoding import Dims, DistanceBias, Tokens, combine, partition, trained_mask
from posenc_jax.layers import overrides, stack
from posenc_jax.positions import tokens_of_row

pytestmark = pytest.mark.sampled

FAR = 4 * L


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


def test_no_logit_depends_on_a_later_token(encoding, make_model, make_tokens):
    reach = encoding.reach
    length = FAR if reach is None else min(FAR, reach)
    model, tokens = make_model(layers=max(2, encoding.period)), make_tokens(length)

    def last_seen(shift, at):
        # The gradient is with respect to a shift of the input embeddings, one number per token.
        x = model.embed(tokens) + shift[None, :, None]
        x = model.run_blocks(x, encoding, tokens_of_row(encoding, 1, length))
        return jnp.sum(jnp.sin(x[0, at]))

    gradient = jax.jit(jax.grad(last_seen))
    for at in (0, length // 2, length - 1):
        reached = np.asarray(gradient(np.zeros(length, np.float32), at))
        assert np.all(reached[at + 1 :] == 0)
        assert np.all(reached[: at + 1] != 0)


@pytest.mark.parametrize(
    ("start", "tolerance"), [(0, 2e-6), (2_000, 2e-6), (100_000, 1e-5), (131_072, 1e-5)]
)
def test_scores_depend_on_distance_alone(encoding, start, tolerance):
    relative = isinstance(encoding, DistanceBias) or encoding.phase(jnp.arange(2)) is not None
    if not relative:
        pytest.skip("not an encoding of distance alone")
    q, k = (x.swapaxes(1, 2)[:1] for x in qkv(1)[:2])
    for distance in (0, 1, 7, 500, 3_000):
        expected = score(encoding, q, k, distance, 0)
        moved = score(encoding, q, k, start + distance, start)
        np.testing.assert_allclose(moved, expected, atol=tolerance, rtol=tolerance)


def test_one_query_at_a_time_equals_all_at_once(encoding, drawn):
    encoding = drawn(encoding).layer(0)
    q, k, v = qkv(L)
    features, row = None, tokens_of_row(encoding, 2, L)
    if overrides(encoding, "read"):
        features = encoding.read(jax.random.normal(jax.random.key(7), (2, L, DIMS.width)))
    whole, last = jax.jit(
        lambda: [attend(part, k, v, encoding, row, features=features) for part in (q, q[:, -3:])]
    )()
    # Without positions of their own, queries are the last tokens.
    # DAPE's random MLP has logits of about 30, the random steps of selective RoPE angles of 100.
    limit = {"dape": 2e-5, "selective_rope": 5e-6}.get(encoding.name, 2e-6)
    np.testing.assert_allclose(last, whole[:, -3:], atol=limit)
    cut = lambda at: lambda x: jax.lax.dynamic_slice_in_dim(x, at, 1, axis=1)  # noqa: E731
    single_query = jax.jit(
        lambda at: attend(
            jax.lax.dynamic_slice_in_dim(q, at, 1, axis=1),
            k,
            v,
            encoding,
            q_positions=encoding.positions(L)[at][None],
            k_positions=encoding.positions(L),
            features=None if features is None else (jax.tree.map(cut(at), features), features),
        )
    )
    for at in range(L):
        np.testing.assert_allclose(single_query(at)[:, 0], whole[:, at], atol=limit)


@pytest.mark.parametrize("packed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients_reach_exactly_the_trained_fields(encoding, packed, make_model, make_tokens):
    model, tokens = make_model(), make_tokens(L, batch=2)
    segments = jnp.array([[0] * 5 + [1] * (L - 5)] * 2) if packed else None

    def loss(encoding):
        logits = model(tokens, encoding, key=jax.random.key(1), segments=segments)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)
        return -jnp.mean(picked)

    # All gradients: fixed arrays have one too, which training does not use.
    gradient_of = jax.jit(jax.grad(lambda *parts: loss(combine(*parts)), (0, 1)))
    gradients = gradient_of(*partition(encoding))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.all(np.isfinite(gradient)), path
    assert len(jax.tree.leaves(gradients[0])) == sum(jax.tree.leaves(trained_mask(encoding)))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients[0]):
        assert np.any(gradient != 0), path


def test_word_order_reaches_the_last_row(encoding, make_model, make_tokens, forward, drawn):
    model, tokens = make_model(layers=1), make_tokens(L)
    encoding = drawn(encoding)
    order = jnp.array([*np.random.default_rng(0).permutation(L - 1), L - 1])
    before = forward(model, tokens, encoding)[0, -1]
    after = forward(model, tokens[:, order], encoding)[0, -1]
    change = float(jnp.max(jnp.abs(after - before)))
    if encoding.name == "nope":
        assert change < 1e-5
    else:
        assert change > 1e-3


def test_positions_stay_float32_in_a_bfloat16_model(encoding, make_model, make_tokens):
    model, tokens = make_model(dtype="bfloat16", scan=False), make_tokens(L)
    jaxpr = jax.make_jaxpr(model.__call__)(tokens, encoding)
    watched = {"cos", "sin", "exp", "log", "log1p", "pow", "iota", "reduce_max"}
    seen = set()
    for equation in equations(jaxpr.jaxpr):
        name = equation.primitive.name
        if name in watched:
            seen.add(name)
            assert all(out.aval.dtype != jnp.bfloat16 for out in equation.outvars), equation
    assert "exp" in seen  # the softmax, at least
    assert jaxpr.out_avals[0].dtype == jnp.float32
    for hook in (encoding.bias(jnp.arange(L), jnp.arange(L)), encoding.phase(jnp.arange(L))):
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(hook))


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


def test_leaves_are_strongly_typed_float32(encoding):
    for leaf in jax.tree.leaves(encoding):
        assert leaf.dtype == jnp.float32
        assert not leaf.weak_type  # a weak type would compile another program


def test_packed_documents_do_not_see_each_other(encoding, make_model, make_tokens, forward):
    model, tokens = make_model(), make_tokens(L, batch=2)
    cut = 5
    segments = jnp.array([[0] * cut + [1] * (L - cut), [0] * (L - cut) + [1] * cut])
    packed = forward(model, tokens, encoding, segments=segments)
    # The second documents start at the beginning of a row; later tokens change nothing.
    rolled = jnp.asarray([np.roll(tokens[0], -cut), np.roll(tokens[1], cut)])
    first, second = (np.asarray(forward(model, row, encoding)) for row in (tokens, rolled))
    for row, at in ((0, cut), (1, L - cut)):
        alone = np.concatenate([first[row, :at], second[row, : L - at]])
        np.testing.assert_allclose(packed[row], alone, atol=1e-5)


def test_a_stack_of_equal_layers_equals_the_shared_encoding(
    encoding, make_model, make_tokens, forward
):
    model, tokens = make_model(), make_tokens(L)
    stacked = stack([encoding, encoding])
    np.testing.assert_allclose(
        forward(model, tokens, stacked), forward(model, tokens, encoding), atol=1e-5
    )
    assert jax.tree.structure(stacked.layer(1)) == jax.tree.structure(encoding.layer(1))


def test_each_layer_of_a_stack_has_its_own_numbers(
    encoding, make_model, make_tokens, forward, drawn
):
    """Each layer has its own numbers, scanned and unrolled."""
    first, second = drawn(encoding, 0), drawn(encoding, 1)
    tokens = make_tokens(L)
    stacked, swapped = stack([first, second]), stack([second, first])
    scanned = forward(make_model(), tokens, stacked)
    written_out = forward(make_model(scan=False), tokens, stacked)
    np.testing.assert_allclose(written_out, scanned, atol=1e-5)
    has_trained_leaves = any(jax.tree.leaves(trained_mask(encoding)))
    differs = bool(jnp.any(jnp.abs(forward(make_model(), tokens, swapped) - scanned) > 1e-4))
    assert differs == has_trained_leaves


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


def test_positions_beyond_the_reach_are_refused(encoding, make_model, make_tokens, forward):
    if encoding.reach is None:
        pytest.skip("any length")
    with pytest.raises(ValueError, match=f"'{encoding.name}' reaches {encoding.reach} positions"):
        encoding.positions(encoding.reach + 1)
    beyond = encoding.reach + jnp.arange(L)
    if encoding.reach < 1000:
        with pytest.raises(ValueError, match="reaches"):
            make_model()(make_tokens(encoding.reach + 1), encoding)
        with pytest.raises(ValueError, match="reaches"):
            make_model()(make_tokens(L), encoding, positions=beyond)
        packed = (jnp.arange(encoding.reach + 3) >= encoding.reach)[None]
        logits = forward(make_model(), make_tokens(packed.size), encoding, segments=packed)
        assert jnp.all(jnp.isfinite(logits))  # each document is within the reach
        with pytest.raises(ValueError, match="reaches"):
            make_model()(make_tokens(L + 3), encoding, segments=jnp.zeros((1, L + 3), int))
