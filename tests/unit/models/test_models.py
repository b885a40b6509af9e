"""The decoder: options, layers and use of encodings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import build, close
from sizes import DIMS, VOCAB, L

import models
import posenc_jax
from models import likelihoods
from posenc_jax.encoding import Dims
from posenc_jax.runtime.trees import by_path, with_leaves
from posenc_jax.testing import equations

pytestmark = pytest.mark.sampled

SLOW = pytest.mark.slow
OPTIONS = [
    {"norm_place": "post", "head_dim": 4, "scan": False},
    {"norm": "layer", "mlp_width": 24, "kv_heads": 2, "bos": True},
    {"dtype": "bfloat16"},
    {"norm": "layer", "norm_place": "post", "activation": "swiglu", "kv_heads": 1, "tied": False},
    {"norm": "layer", "parallel": True, "activation": "gelu_erf", "biases": "all"},
    {"norm": "layer_without_bias", "embed_norm": True, "qk_norm": True, "biases": "qkv"},
    {"latent_dim": 12, "rotary_dim": 2, "value_dim": 6, "biases": "qkv"},
    {"norm_place": "both", "activation": "geglu", "embed_scale": True, "kv_heads": 2},
    {"norm_place": "output", "qk_norm": True, "qk_norm_of": "all", "kv_heads": 2},
    {"score_size": 3, "score_cap": 2.0, "logit_cap": 8.0, "embed_factor": 2.0},
    {"parallel": True, "shared_norm": True, "residual_factor": 0.5, "logit_factor": 0.5},
]


def normal(name, leaf):
    """Numbers for an array of a model, by the length of its name."""
    drawn = np.random.default_rng(len(name)).normal(size=leaf.shape)
    return np.float32(0.3 * drawn)


def loss(model, encoding, tokens):
    logits = model(tokens[:, :-1], encoding)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
    return -jnp.mean(picked)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_starts_at_the_uniform_loss_and_learns(
    options, make_model, make_tokens, forward
):
    model, tokens = make_model(**options), make_tokens(L, batch=4)
    sizes = model.config
    dims = Dims(sizes.heads, sizes.head_size, sizes.width, L, rotary_dim=sizes.rotary_dim)
    encoding = build("rope", dims)

    @jax.jit
    def step(model):
        value, gradient = jax.value_and_grad(loss)(model, encoding, tokens)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, model, gradient)

    start, model = step(model)
    assert abs(float(start) - np.log(VOCAB)) < 1
    for _ in range(20):
        value, model = step(model)
    assert value < start - 0.2
    logits = jax.eval_shape(forward, model, tokens, encoding)
    assert logits.dtype == jnp.float32 and logits.shape == (4, L, VOCAB)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(model))


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({"qk_norm": True}, {"blocks.attention.q_norm.scale", "blocks.attention.k_norm.scale"}),
        (
            {"norm_place": "both"},
            {"blocks.attention_output_norm.scale", "blocks.mlp_output_norm.scale"},
        ),
        ({"embed_scale": True}, set()),
        ({"embed_norm": True}, {"embed_norm.scale"}),
        ({"biases": "qkv"}, {f"blocks.attention.{name}.bias" for name in "qkv"}),
        (
            {"biases": "all"},
            {f"blocks.attention.{name}.bias" for name in ("q", "k", "v", "out")}
            | {"blocks.mlp.up.bias", "blocks.mlp.down.bias"},
        ),
        ({"norm": "layer"}, {"blocks.attention_norm.bias", "blocks.mlp_norm.bias", "norm.bias"}),
        ({"norm": "layer_without_bias"}, set()),
        ({"parallel": True}, set()),
        ({"activation": "gelu_erf"}, set()),
        ({"norm_eps": 0.1}, set()),
        ({"embed_factor": 2.0}, set()),
        ({"residual_factor": 0.5}, set()),
        ({"score_size": 3}, set()),
        ({"score_cap": 0.1}, set()),
        ({"logit_factor": 0.5}, set()),
        ({"logit_cap": 3.0}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",  # sets have no order
)
def test_an_option_adds_its_arrays_and_changes_the_logits(
    options, added, make_model, make_tokens, forward
):
    """Drawn anew, since biases that are zero and norms that are one show nothing."""
    usual, model, tokens = by_path(make_model()), make_model(**options), make_tokens(L)
    arrays = by_path(model)
    assert set(arrays) - set(usual) == added and set(usual) <= set(arrays)
    drawn = {
        name: usual.get(name, leaf) if name in usual and name not in added else normal(name, leaf)
        for name, leaf in arrays.items()
    }
    before = forward(make_model(), tokens, build("rope"))
    after = forward(with_leaves(model, drawn), tokens, build("rope"))
    assert np.abs(after - before).max() > 1e-5  # both forms of GELU are close
    for name in added:  # and the logits depend on each of them
        moved = with_leaves(model, drawn | {name: drawn[name] + 0.5})
        changed = forward(moved, tokens, build("rope"))
        assert name == "blocks.attention.k.bias" or np.abs(changed - after).max() > 1e-3


def test_a_shared_norm_is_one_norm_where_there_were_two_alike(make_model, make_tokens, forward):
    shared, tokens = make_model(parallel=True, shared_norm=True), make_tokens(L)
    norm = "blocks.attention_norm.scale"
    arrays = by_path(shared) | {norm: normal(norm, by_path(shared)[norm])}
    both = make_model(parallel=True)
    assert set(by_path(both)) - set(arrays) == {"blocks.mlp_norm.scale"}
    both = with_leaves(both, arrays | {"blocks.mlp_norm.scale": arrays[norm]})
    logits = forward(with_leaves(shared, arrays), tokens, build("rope"))
    np.testing.assert_array_equal(logits, forward(both, tokens, build("rope")))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_embeddings_but_not_bos_are_scaled_by_the_root_that_the_dtype_holds(
    dtype, make_model, make_tokens
):
    model, tokens = make_model(embed_scale=True, bos=True, dtype=dtype), make_tokens(L)
    root = jnp.asarray(DIMS.width**0.5, dtype).astype(jnp.float32)
    read = model.read(tokens)
    np.testing.assert_array_equal(read[:, 1:], root * model.embed(tokens)[:, 1:])
    np.testing.assert_array_equal(read[0, 0], model.bos[...])


def test_bfloat16_weights_change_no_bit_of_a_bfloat16_pass(make_model, make_tokens, forward):
    options = {"norm": "layer", "biases": "all", "qk_norm": True, "embed_norm": True}
    model = make_model(dtype="bfloat16", tied=False, **options)
    drawn = {name: np.asarray(leaf) + normal(name, leaf) for name, leaf in by_path(model).items()}
    held = {name: leaf.astype(jnp.bfloat16) for name, leaf in drawn.items()}
    wide = {name: leaf.astype(jnp.float32) for name, leaf in held.items()}
    both = (with_leaves(model, weights) for weights in (held, wide))
    half, whole = (forward(each, make_tokens(L), build("rope")) for each in both)
    np.testing.assert_array_equal(half, whole)


@pytest.mark.parametrize(
    "name", ["t5", *(pytest.param(n, marks=SLOW) for n in ("rope", "learned"))]
)
def test_scanned_layers_equal_unrolled_layers(name, make_model, make_tokens):
    tokens, encoding = make_tokens(L, batch=2), build(name)
    scanned, unrolled = (
        jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(make_model(scan=s), encoding, tokens)
        for s in (True, False)
    )
    close(*map(jax.tree.leaves, (scanned, unrolled)), atol=1e-6)


def test_every_projection_multiplies_two_dimensional_operands(make_model, make_tokens):
    """The weight gradient of a 3-D operand takes twice as long on CPU."""
    model, tokens = make_model(scan=False, activation="swiglu", tied=False), make_tokens(L, 2)
    jaxpr = jax.make_jaxpr(jax.grad(loss))(model, build("nope"), tokens).jaxpr
    products = [e for e in equations(jaxpr) if e.primitive.name == "dot_general"]
    weights = {leaf.shape[-2:] for leaf in jax.tree.leaves(model) if leaf.ndim > 1}
    projections = 0
    for product in products:
        shapes = [v.aval.shape for v in product.invars]
        if any(len(s) == 2 and (s in weights or s[::-1] in weights) for s in shapes):
            projections += 1
            assert all(len(s) == 2 for s in shapes), product
    assert projections >= 2 * 7 * 2 + 2  # forward, and backward for x: 7 per layer and the output


def test_bos_is_one_array_more_that_replaces_the_first_token(make_model, make_tokens, forward):
    model, tokens, encoding = make_model(bos=True), make_tokens(L, batch=2), build("nope")
    arrays, usual = by_path(model), by_path(make_model())
    assert arrays.keys() - usual.keys() == {"bos"}
    assert all(np.array_equal(arrays[name], array) for name, array in usual.items())
    other = tokens.at[:, 0].set((tokens[:, 0] + 1) % VOCAB)
    np.testing.assert_array_equal(forward(model, tokens, encoding), forward(model, other, encoding))
    second = tokens.at[:, 1].set((tokens[:, 1] + 1) % VOCAB)
    assert jnp.any(forward(model, tokens, encoding) != forward(model, second, encoding))


def test_every_packed_document_begins_with_bos(make_model, make_tokens, forward):
    model, tokens, encoding = make_model(bos=True), make_tokens(L, batch=2), build("rope")
    segments = jnp.array([[0] * 6 + [1] * (L - 6)] * 2)
    packed = forward(model, tokens, encoding, segments=segments)
    alone = [forward(model, part, encoding) for part in (tokens[:, :6], tokens[:, 6:])]
    np.testing.assert_allclose(packed, jnp.concatenate(alone, axis=1), atol=1e-5)


def test_positions_may_be_given(make_model, make_tokens, forward):
    model, tokens, alibi = make_model(), make_tokens(L), build("alibi")
    plain = forward(model, tokens, alibi)
    moved = forward(model, tokens, alibi, positions=100 + jnp.arange(L))
    np.testing.assert_allclose(moved, plain, atol=1e-5)
    stretched = forward(model, tokens, alibi, positions=3 * jnp.arange(L))
    assert jnp.any(jnp.abs(stretched - plain) > 1e-3)
    rows = forward(model, tokens, alibi, positions=jnp.arange(L)[None])
    np.testing.assert_allclose(rows, plain, atol=1e-6)
    with jax.transfer_guard_device_to_host("disallow_explicit"):  # not checked under jit
        logits = forward(model, tokens, build("rope"), positions=(2**31 + np.arange(L)) // 64)
    assert jnp.all(jnp.isfinite(logits))


def test_packed_documents_share_one_draw_of_random_positions(make_model, make_tokens, forward):
    encoding = build("randomized", inner="alibi", max_position=64)
    model, tokens = make_model(), make_tokens(L, batch=2)
    segments = jnp.array([[0] * 6 + [1] * (L - 6)] * 2)
    key = jax.random.key(3)
    draw = encoding.positions(L, key)
    packed = forward(model, tokens, encoding, key=key, segments=segments)
    alone = [
        forward(model, part, encoding, positions=draw[: part.shape[1]])
        for part in (tokens[:, :6], tokens[:, 6:])
    ]
    np.testing.assert_allclose(packed, jnp.concatenate(alone, axis=1), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"tied": False}, {"logit_cap": 1.0}], ids=str)
def test_losses_in_pieces_equal_losses_at_once(
    make_model, make_tokens, forward, options, monkeypatch
):
    """Values, gradients and top predictions agree at a length that the pieces do not divide, and
    the weighted loss, whose gradient comes in the same pass, is the sum of these."""
    encoding = build("rope")
    model, tokens = make_model(**options), make_tokens(L - 1, batch=2)
    targets = jnp.roll(tokens, -1, axis=1)
    weights = jnp.asarray(np.random.default_rng(0).integers(0, 3, targets.shape), jnp.float32)

    def loss(model):
        nats, chosen = model.losses(tokens, targets, encoding)
        return jnp.sum(weights * nats), (nats, chosen)

    def run():
        # New functions each time, so that jit reads the changed LOGITS.
        both = jax.jit(jax.value_and_grad(lambda model: loss(model), has_aux=True))(model)
        once = jax.jit(jax.value_and_grad(lambda m: m.loss(tokens, targets, weights, encoding)))
        total, gradients = once(model)
        np.testing.assert_allclose(total, both[0][0], rtol=1e-6)
        for ours, theirs in zip(*map(jax.tree.leaves, (gradients, both[1])), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())
        return both

    (_, (nats, chosen)), gradients = run()
    logits = forward(model, tokens, encoding)
    np.testing.assert_array_equal(chosen, jnp.argmax(logits, axis=-1))
    np.testing.assert_allclose(nats, models.likelihood(logits, targets)[0], atol=5e-6)
    monkeypatch.setitem(likelihoods.LOGITS, "cpu", 2 * VOCAB * 3)
    (_, (nats_, chosen_)), gradients_ = run()
    np.testing.assert_allclose(nats_, nats, atol=1e-6)
    np.testing.assert_array_equal(chosen_, chosen)
    close(gradients_, gradients, atol=1e-5)


def test_log_sums_in_one_pass_are_those_of_two(monkeypatch):
    logits = jnp.asarray(100 * np.random.default_rng(0).normal(size=(5, 300)), jnp.float32)
    of_two = likelihoods.logsum_of(logits)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "reduce_max" not in str(jax.make_jaxpr(likelihoods.logsum_of)(logits))
    np.testing.assert_allclose(likelihoods.logsum_of(logits), of_two, rtol=1e-6)


def test_hooks_refuse_positions_beyond_float32(encoding):
    """Direct calls check positions; under jit their values are unknown."""
    hooks = []
    if "logn" in posenc_jax.extensions.fitting(encoding):
        extended = posenc_jax.extend("logn", encoding, 1.0)
        hooks.append(extended.layer(encoding.period - 1).query_scale)
    if encoding.phase(jnp.arange(3)) is not None:
        hooks.append(encoding.phase)
    if encoding.bias(jnp.arange(3), jnp.arange(3)) is not None:
        hooks.append(lambda positions: encoding.bias(positions, positions))
    for far in (2**24 + 1, 2**32, -(2**25), float("nan"), float("inf")):
        positions = np.array([0, 1, far])
        for hook in hooks:
            with pytest.raises(ValueError, match=r"must be finite and at most 2\^24|reaches"):
                hook(positions)
        with pytest.raises(ValueError, match=r"must be finite and at most 2\^24"):
            posenc_jax.schemes.t5.bucket(positions)


def test_a_loop_over_layers_copies_no_weights(make_model, make_tokens):
    model, tokens = make_model(layers=8, mlp_width=512, scan=True), make_tokens(L)
    compiled = jax.jit(lambda model: model(tokens, build("rope"))).lower(model).compile()
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model.blocks))
    assert compiled.memory_analysis().temp_size_in_bytes < weights / 4


@pytest.mark.parametrize("scan", [True, False])
def test_a_model_with_its_layers_apart_reads_the_same(scan, make_model, make_tokens):
    model, tokens = make_model(scan=scan), make_tokens(L)
    expected = model(tokens, build("rope"))
    np.testing.assert_allclose(model.unstacked()(tokens, build("rope")), expected, atol=1e-6)
