"""A model with a cache computes what the full pass computes, whatever the split of a row."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, L, with_options

import models
import posenc_jax
from posenc_jax import extensions, schemes

SIZE = 2 * L + 9
CUTS = (0, 13, 26, 27, 28, SIZE)  # pieces of one size, so of few programs, and single tokens


@jax.jit
def step(model, tokens, encoding, cache, counts=None):
    return model.step(tokens, encoding, cache, counts)


def extended():
    """Every extension around every encoding that it fits, and windows that wrap around a ring."""
    for name in schemes.names():
        encoding = posenc_jax.build(name, DIMS, key=jax.random.key(3))
        for extension in extensions.fitting(encoding):
            text = with_options(extension, name)
            quick = (name, text) == ("rope", "self_extend")
            marks = () if quick else pytest.mark.slow
            yield pytest.param(name, text, id=f"{name}@{text}", marks=marks)
    texts = "window:size=1", "yarn:2+logn+window:size=7", "streaming:first=2:window=9"
    texts += ("yarn:4:attention_factor=query", "dynamic_yarn:frequency_scale=4")
    for text in texts:
        marks = pytest.mark.slow if text.startswith("window") else ()
        yield pytest.param("rope", text, id=f"rope@{text}", marks=marks)


def read_by_pieces(model, encoding, tokens, cuts=CUTS, **options):
    cache = models.init_cache(model.config, encoding, len(tokens), tokens.shape[1], **options)
    logits = []
    for first, last in itertools.pairwise(sorted({min(c, tokens.shape[1]) for c in cuts})):
        out, cache = step(model, tokens[:, first:last], encoding, cache)
        logits.append(out)
    return jnp.concatenate(logits, axis=1), cache


@pytest.mark.sampled
def test_a_row_by_pieces_equals_the_full_pass(forward, encoding, drawn, make_model, make_tokens):
    model, encoding = make_model(), drawn(encoding)
    tokens = make_tokens(min(encoding.reach or SIZE, SIZE), batch=2)
    logits, _ = read_by_pieces(model, encoding, tokens)
    # Steps between neighbours of CoPE's random table magnify the rounding of its sums.
    limit = 3e-4 if encoding.name == "cope" else 2e-5
    np.testing.assert_allclose(logits, forward(model, tokens, encoding), rtol=limit, atol=limit)


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "layer", "parallel": True, "activation": "gelu_erf", "biases": "all"}
        | {"qk_norm": True, "embed_norm": True, "norm_eps": 1e-3, "bos": True},
        {"norm_place": "both", "activation": "geglu", "embed_scale": True, "bos": True},
        {"norm_place": "output", "qk_norm": True, "qk_norm_of": "all"},
    ],
    ids=["parallel", "both", "output"],
)
def test_options_of_models_by_pieces_equal_the_full_pass(forward, make_model, make_tokens, options):
    model = make_model(layers=1, **options)
    model = jax.tree.map(
        lambda leaf: leaf + np.float32(0.1 * np.cos(np.arange(leaf.size))).reshape(leaf.shape),
        model,
    )
    tokens, encoding = make_tokens(SIZE, batch=2), posenc_jax.build("rope", DIMS)
    logits, _ = read_by_pieces(model, encoding, tokens)
    np.testing.assert_allclose(logits, forward(model, tokens, encoding), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "extension"), list(extended()))
def test_extensions_by_pieces_equal_the_full_pass(
    forward, name, extension, drawn, make_model, make_tokens
):
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(3))
    if name != "selective_rope":  # drawn, its angles magnify rounding; as built, none is neutral
        encoding = drawn(encoding)
    narrow = "window" in extension or "streaming" in extension
    model = make_model(layers=2 if narrow else encoding.period, kv_heads=2)
    encoding = posenc_jax.extend(extension, encoding, 2.5)
    tokens = make_tokens(min(encoding.reach or SIZE, SIZE), batch=2)
    expected = forward(model, tokens, encoding)
    logits, _ = read_by_pieces(model, encoding, tokens)
    np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)
    if models.rotates_once(model.config, encoding):
        logits, _ = read_by_pieces(model, encoding, tokens, rotated=True)
        np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.sampled
def test_rows_of_unequal_lengths_equal_their_own_passes(forward, encoding, make_model, make_tokens):
    """Padding on the right is neither seen nor held, in rings and after them too."""
    model, counts = make_model(layers=1), np.array([3, 9, 14])
    tokens = make_tokens(min(encoding.reach or SIZE, SIZE), batch=3)
    encoding = encoding.windowed(6)
    cache = models.init_cache(model.config, encoding, 3, tokens.shape[1])
    _, cache = step(model, tokens[:, :14], encoding, cache, counts)
    for moved in range(2):
        places = counts + moved
        new = tokens[np.arange(3), places][:, None]
        logits, cache = step(model, new, encoding, cache)
        expected = forward(model, tokens, encoding)[np.arange(3), places]
        np.testing.assert_allclose(logits[:, 0], expected, rtol=2e-5, atol=2e-5)


def test_a_window_holds_no_more_keys_than_it_sees(make_model):
    config = make_model().config
    rope = posenc_jax.build("rope", DIMS)
    hybrid = posenc_jax.build("hybrid", DIMS, pattern="local,global", window=5)
    streaming = posenc_jax.extend("streaming:first=2:window=9", rope, 1.0)

    def slots(encoding, size=1000):
        return [held.slots for held in models.init_cache(config, encoding, 1, size).layers]

    assert slots(rope) == [1000, 1000]
    assert slots(rope.windowed(7)) == [7, 7]
    assert slots(hybrid) == [5, 1000]
    assert slots(streaming) == [11, 11]
    assert slots(streaming, size=8) == [8, 8]


@pytest.mark.parametrize(
    ("name", "rotated"), [("yarn", False), ("dynamic_yarn:frequency_scale=4", True)]
)
def test_an_extension_may_change_between_steps(name, rotated, forward, make_model, make_tokens):
    """Held keys are those of no scale: the last step equals a full pass of its own encoding."""
    model, rope = make_model(layers=1), posenc_jax.build("rope", DIMS)
    tokens = make_tokens(SIZE)
    before, yarn = (posenc_jax.extend(name, rope, scale) for scale in (1.0, 4.0))
    cache = models.init_cache(model.config, rope, 1, SIZE, rotated=rotated)
    _, cache = step(model, tokens[:, :-1], before, cache)
    logits, _ = step(model, tokens[:, -1:], yarn, cache)
    np.testing.assert_allclose(
        logits[:, 0], forward(model, tokens, yarn)[:, -1], rtol=2e-5, atol=2e-5
    )


def test_stale_keys_keep_the_angle_of_their_step(forward, make_model, make_tokens):
    """Against dense attention in float64, whose keys have the frequencies of their own steps."""
    model, rope = make_model(layers=1), posenc_jax.build("rope", DIMS)
    tokens, yarn = make_tokens(SIZE), posenc_jax.extend("yarn", rope, 4.0)
    cache = models.init_cache(model.config, rope, 1, SIZE, rotated=True)
    _, cache = step(model, tokens[:, :-1], rope, cache)
    logits, _ = step(model, tokens[:, -1:], yarn, cache)

    block, x = model.unstacked()._block(0), model.read(tokens)
    read = block.attention_norm(x)
    q, k = (
        np.asarray(f(read, 1)[0], np.float64)
        for f in (block.attention.queries, block.attention.keys)
    )
    v = np.asarray(block.attention.v(read)[0], np.float64).reshape(SIZE, *q.shape[::2])
    steps = [rope] * (SIZE - 1) + [yarn]
    angles = np.array([place * np.float64(each.inv_freq) for place, each in enumerate(steps)])
    gains = np.array([float(each.gain) for each in steps])
    half = q.shape[-1] // 2
    turned = gains[:, None] * np.exp(1j * angles)
    q, k = ((one[..., :half] + 1j * one[..., half:]) * turned for one in (q, k))  # [H, T, K / 2]
    scores = np.einsum("hk,hsk->hs", q[:, -1], k.conj()).real / (2 * half) ** 0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = np.einsum("hs,shk->hk", weights, v).reshape(1, -1)
    x = x[:, -1] + block.attention.out(jnp.asarray(out, jnp.float32))
    x = x + block.mlp(block.mlp_norm(x))
    np.testing.assert_allclose(logits[0], model.logits(model.norm(x)), rtol=2e-5, atol=2e-5)
    assert jnp.abs(logits[:, 0] - forward(model, tokens, yarn)[:, -1]).max() > 1e-3


@pytest.mark.parametrize("rotated", [False, True], ids=["prefix", "stale"])
@pytest.mark.parametrize("method", ["dynamic_ntk", "dynamic_yarn", "dynamic_pi"])
def test_a_dynamic_extension_leaves_the_first_l_tokens(
    forward, method, rotated, make_model, make_tokens
):
    """Every step has its own encoding, which is the plain one until more than L are read."""
    model, tokens = make_model(layers=1), make_tokens(2 * L)
    rope = posenc_jax.build("rope", DIMS)
    cache = models.init_cache(model.config, rope, 1, 2 * L, rotated=rotated)
    steps = []
    for place in range(2 * L):
        encoding = posenc_jax.extend(method, rope, (place + 1) / L)
        logits, cache = step(model, tokens[:, place : place + 1], encoding, cache)
        steps.append(logits)
    change = jnp.abs(jnp.concatenate(steps, axis=1) - forward(model, tokens, rope)).max(axis=(0, 2))
    assert change[:L].max() < 2e-5 and change[L:].min() > 1e-4


def test_bfloat16_stays_within_its_rounding(forward, make_model, make_tokens):
    rope, tokens = posenc_jax.build("rope", DIMS), make_tokens(SIZE, batch=2)
    model = make_model(layers=1, dtype="bfloat16")
    logits, cache = read_by_pieces(model, rope, tokens)
    assert cache.layers[0].k.dtype == jnp.bfloat16
    exact = forward(make_model(layers=1), tokens, rope)
    rounding = jnp.abs(forward(model, tokens, rope) - exact).max()
    assert jnp.abs(logits - exact).max() < 2 * rounding


@pytest.mark.slow
def test_losses_of_pieces_are_those_of_the_row(make_model, make_tokens):
    model, rope, row = make_model(), posenc_jax.build("rope", DIMS), make_tokens(SIZE)
    cache = models.init_cache(model.config, rope, 1, SIZE)
    nats = []
    for first, last in ((0, 20), (20, SIZE - 1)):
        tokens, targets = row[:, first:last], row[:, first + 1 : last + 1]
        part, _, cache = model.losses_step(tokens, targets, rope, cache)
        nats.append(part)
    expected, _ = model.losses(row[:, :-1], row[:, 1:], rope)
    np.testing.assert_allclose(jnp.concatenate(nats, 1), expected, rtol=1e-5, atol=1e-5)
