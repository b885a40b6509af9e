"""Hybrid layers: chunks, bases, first and last layers, and skipped blocks."""

import functools
import sys
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import KEY, H, K, build, close, mixed, qkv, scores_of, visible
from sizes import DIMS, VOCAB, L

import models
import posenc_jax
from posenc_jax import extensions
from posenc_jax.attention import attend, blockwise
from posenc_jax.config import building, load
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.layers import Wrapper

pytestmark = pytest.mark.sampled

LAYERS = Dims(H, K, DIMS.width, L, layers=6)


def hybrid_of(dims=DIMS, **options):
    return build("hybrid", dims, **options)


def test_a_window_of_zero_lets_local_layers_see_the_whole_row():
    whole = hybrid_of(pattern="local,global", window=0)
    assert whole.layer(0).window is None
    rope = build("rope")
    np.testing.assert_array_equal(whole.layer(0).inv_freq, rope.inv_freq)
    assert "self_extend" in extensions.fitting(whole)  # which fits no layer with a window


# Chunks


def expected(q, k, v, places, documents, chunk, window=None):
    """Attention without positions in float64."""
    pairs = [(x[:, :, None], x[:, None]) for x in (places // chunk, documents)]
    seen = visible(*[documents.shape[1]] * 2, window)
    for of_query, of_key in pairs:
        seen = seen & (of_query == of_key)
    return mixed(scores_of(q, k), seen[:, None], v)


@pytest.mark.parametrize("how", ["plain", "blocks", "loop"])
@pytest.mark.parametrize(
    ("chunk", "window", "packed"),
    [(50, None, False), (50, 9, False), (150, None, False), (50, None, True), (70, 33, True)],
)
def test_a_chunk_attends_to_itself_only(how, chunk, window, packed, monkeypatch):
    length = 200
    if how == "loop":
        monkeypatch.setattr(sys.modules[blockwise.__module__], "UNROLLED", 0)
    q, k, v = qkv(length)
    cuts = (120, 65) if packed else (0, 0)
    documents = np.stack([np.arange(length) >= cut for cut in cuts]).astype(int)
    starts = [np.where(row, cut, 0) for row, cut in zip(documents, cuts, strict=True)]
    places = np.arange(length) - np.stack(starts)
    encoding = Wrapper(dims=DIMS, inner=build("nope").replace(chunk=chunk))
    segments = jnp.asarray(documents) if packed else None
    way = "plain" if how == "plain" else "blockwise"

    def run(q, **given):
        return attend(q, k, v, encoding, window=window, implementation=way, **given)

    right = expected(q, k, v, places, documents, chunk, window)
    np.testing.assert_allclose(jax.jit(run)(q, segments=segments), right, atol=3e-6)
    placed = {"q_positions": jnp.asarray(places)[:, -7:], "k_positions": jnp.asarray(places)}
    for given in (placed, {}):  # the last queries only, as in decoding
        last = run(q[:, -7:], segments=segments, **given)
        np.testing.assert_allclose(last, right[:, -7:], atol=3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["hybrid", "randomized"])
def test_chunks_count_tokens_under_random_positions(inner, make_model, make_tokens, forward):
    """The first token of the second chunk sees only itself at any position."""
    hybrid = {"pattern": "local", "window": 5, "chunked": True}
    encoding = hybrid_of(**hybrid)
    key = None
    if inner == "randomized":
        encoding = build("randomized", inner="hybrid", **hybrid)
        key = jax.random.key(1)
    model, tokens = make_model(layers=1), make_tokens(L)
    other = tokens.at[0, 4].add(1)
    before, after = (forward(model, t, encoding, key=key) for t in (tokens, other))
    assert jnp.any(before[0, 4] != after[0, 4])
    np.testing.assert_array_equal(before[0, 5:], after[0, 5:])


# Layers


def test_a_hybrid_of_equal_layers_is_their_encoding(make_model, make_tokens, forward):
    model, tokens = make_model(layers=4), make_tokens(2 * L)
    for options, name, window in (
        ({"window": 2 * L, "global_rope": True}, "rope", None),
        ({"window": 2 * L, "global_rope": True, "chunked": True}, "rope", None),
        ({"pattern": "local", "window": L}, "rope", L),
        ({"pattern": ["global", "global"]}, "nope", None),
    ):
        expected = forward(model, tokens, build(name), window=window)
        actual = forward(model, tokens, hybrid_of(**options))
        np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("pattern", "layers"),
    [("local,global", 5), pytest.param("local,local,local,global", 10, marks=pytest.mark.slow)],
)
def test_scanned_periods_equal_unrolled_layers(pattern, layers, make_tokens):
    """The model has two whole periods and a partial scanned."""
    tokens = make_tokens(L, batch=2)
    encoding = hybrid_of(pattern=pattern, window=5)

    def value(scan):
        fields = dict(layers=layers, width=DIMS.width, heads=DIMS.heads, vocab=VOCAB, scan=scan)
        model = models.Transformer(models.Config(**fields), KEY)

        def loss(model):
            return jnp.mean(model(tokens, encoding) ** 2)

        return jax.jit(jax.value_and_grad(loss))(model)

    ours, theirs = (jax.tree.leaves(value(scan)) for scan in (True, False))
    close(ours, theirs, atol=2e-6)


def test_layers_follow_the_pattern():
    encoding = hybrid_of(LAYERS, window=5)
    layers = [encoding.layer(index) for index in range(6)]
    assert [layer.name for layer in layers] == ["rope", "rope", "rope", "nope", "rope", "rope"]
    assert all(layer.window == {"rope": 5, "nope": None}[layer.name] for layer in layers)


def test_each_kind_of_layer_has_its_own_base():
    rope = functools.partial(build, "rope")
    hybrid = hybrid_of(global_rope=True, local_base=1e4, global_base=1e6, global_keep=0.25)
    np.testing.assert_array_equal(hybrid.layer(0).inv_freq, rope(base=1e4).inv_freq)
    np.testing.assert_array_equal(hybrid.layer(3).inv_freq, rope(base=1e6, keep=0.25).inv_freq)
    shared = hybrid_of(global_rope=True, base=500.0)
    for index in (0, 3):
        np.testing.assert_array_equal(shared.layer(index).inv_freq, rope(base=500.0).inv_freq)
    assert hybrid_of(layout="interleaved").layer(0).layout == "interleaved"


def test_odd_head_sizes_need_a_pattern_in_which_nothing_rotates():
    odd = Dims(H, 5, 5 * H, L)
    assert set(hybrid_of(odd, pattern="decay,global").kinds) == {"decay", "global"}
    for options in ({"pattern": "local,global"}, {"pattern": "decay,global", "global_rope": True}):
        with pytest.raises(ValueError, match="must be an even number"):
            hybrid_of(odd, **options)


@pytest.mark.parametrize(("rotates", "full"), [(False, "nope"), (True, "rope")])
def test_decay_layers_are_retention_that_holds_a_state(rotates, full, make_model):
    hybrid = hybrid_of(pattern="decay,decay,decay,global", global_rope=rotates)
    layers = [hybrid.layer(index) for index in range(4)]
    assert [layer.name for layer in layers] == ["retention"] * 3 + [full]
    assert all(layer.rotation is None for layer in layers[:3])
    cache = models.init_cache(make_model(layers=4).config, hybrid, 1, 1000)
    assert [held.k.shape for held in cache.layers] == [(1, H, K, K)] * 3 + [(H, 1000, K)]


def test_extensions_act_on_the_full_layers_between_decay_layers():
    hybrid = hybrid_of(pattern="decay,global", global_rope=True)

    def changed(extension, field):
        extended = posenc_jax.extend(extension, hybrid, 4.0)
        return [getattr(extended.layer(index), field, None) for index in range(2)]

    assert changed("window:size=4", "window") == [4, 4]  # as a baseline
    assert changed("window:size=4:layers=global", "window") == [None, 4]
    assert changed("logn", "logn") == [False, True]
    assert changed("yarn", "gain")[0] is None and changed("yarn", "gain")[1] > 1
    with pytest.raises(ValueError, match="'yarn' changes nothing .* layers='decay'"):
        posenc_jax.extend("yarn:layers=decay", hybrid, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
def test_stacked_windows_see_what_the_gradient_reaches(chunked, make_model, make_tokens):
    dims = Dims(H, K, DIMS.width, L, layers=3)
    encoding = hybrid_of(dims, pattern="local", window=4, chunked=chunked)
    model, tokens = make_model(layers=3), make_tokens(L)
    row = Tokens(position=jnp.arange(L), contiguous=True)

    def last(shift):
        x = model.embed(tokens) + shift[None, :, None]
        return jnp.sum(jnp.sin(model.run_blocks(x, encoding, row)[0, -1]))

    reached = jax.jit(jax.grad(last))(jnp.zeros(L)) != 0
    assert int(jnp.sum(reached)) == (4 if chunked else 3 * 3 + 1) and bool(reached[-4:].all())


def test_recipes_of_published_hybrids_build():
    def read(name, size="tiny"):
        config = import_module(f"configs.{name}").get_config(size)
        return building.plain(load(config), KEY)

    for size, local in (("tiny", 3), ("small", 5)):
        gemma = read("hybrid_bases", size)
        assert gemma.pattern == ("local",) * local + ("global",)
        assert gemma.layer(local).base == 1e6 and gemma.layer(0).base == 1e4
    cohere = read("hybrid_nope")
    assert cohere.layer(0).layout == "interleaved" and cohere.layer(3).name == "nope"
