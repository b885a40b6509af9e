"""Hybrid layers: chunks, bases, first and last layers, and skipped blocks."""

import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import H, K, mixed, qkv, scores_of
from jaxprs import pairs_of_blocks
from sizes import DIMS, L

import posenc_jax
from posenc_jax import extensions
from posenc_jax.attention import attend, blockwise
from posenc_jax.attention.kernels import Unfit, splash
from posenc_jax.config import building, flags, load
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.extensions.distance import Remapped
from posenc_jax.layers import Wrapper

pytestmark = pytest.mark.sampled

LAYERS = Dims(H, K, DIMS.width, L, layers=6)


def build(dims=DIMS, **options):
    return posenc_jax.build("hybrid", dims, **options)


def test_a_window_of_zero_lets_local_layers_see_the_whole_row():
    whole = build(pattern="local,global", window=0)
    assert whole.layer(0).window is None and whole.receptive_field is None
    rope = posenc_jax.build("rope", DIMS)
    np.testing.assert_array_equal(whole.layer(0).inv_freq, rope.inv_freq)
    assert "self_extend" in extensions.fitting(whole)  # which fits no layer with a window


# Chunks


def expected(q, k, v, places, documents, chunk, window=None):
    """Attention without positions, with the mask computed token by token."""
    batch, length = documents.shape
    seen = np.zeros((batch, length, length), bool)
    for b in range(batch):
        for i in range(length):
            for j in range(i + 1):
                same_chunk = places[b, i] // chunk == places[b, j] // chunk
                near = window is None or i - j < window
                seen[b, i, j] = same_chunk and near and documents[b, i] == documents[b, j]
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
    encoding = posenc_jax.build("nope", DIMS).replace(chunk=chunk)
    segments = jnp.asarray(documents) if packed else None
    way = "plain" if how == "plain" else "blockwise"

    def run(q, **given):
        return attend(q, k, v, encoding, window=window, implementation=way, **given)

    right = expected(q, k, v, places, documents, chunk, window)
    np.testing.assert_allclose(jax.jit(run)(q, segments=segments), right, atol=3e-6)
    given = {"q_positions": jnp.asarray(places)[:, -7:], "k_positions": jnp.asarray(places)}
    if packed:  # the last queries only, as in decoding
        given["segments"] = segments[:, -7:], segments
    np.testing.assert_allclose(run(q[:, -7:], **given), right[:, -7:], atol=3e-6)
    last = {"segments": (segments[:, -7:], segments)} if packed else {}
    np.testing.assert_allclose(run(q[:, -7:], **last), right[:, -7:], atol=3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["hybrid", "randomized"])
def test_chunks_count_tokens_under_random_positions(inner, make_model, make_tokens, forward):
    """The first token of the second chunk sees only itself at any position."""
    hybrid = {"pattern": "local", "window": 5, "chunked": True}
    encoding = build(**hybrid)
    key = None
    if inner == "randomized":
        encoding = posenc_jax.build("randomized", DIMS, inner="hybrid", **hybrid)
        key = jax.random.key(1)
    model, tokens = make_model(layers=1), make_tokens(L)
    other = tokens.at[0, 4].add(1)
    before, after = (forward(model, t, encoding, key=key) for t in (tokens, other))
    assert jnp.any(before[0, 4] != after[0, 4])
    np.testing.assert_array_equal(before[0, 5:], after[0, 5:])


def test_wrappers_keep_chunks_and_kernels_refuse_them():
    q, k, v = qkv(60)
    chunked = posenc_jax.build("nope", DIMS).replace(chunk=7)
    wrapped = Wrapper(dims=DIMS, inner=chunked)
    np.testing.assert_array_equal(attend(q, k, v, wrapped), attend(q, k, v, chunked))
    row = Tokens(position=jnp.arange(128), contiguous=True)
    heads = jnp.zeros((1, H, 128, K))
    with pytest.raises(Unfit, match="chunks that do not see each other"):
        splash(heads, heads, heads, chunked, row, row, interpret=True)


def visited(encoding, length=4096):
    shapes = [jax.ShapeDtypeStruct((1, H, length, K), jnp.float32)] * 3
    row = Tokens(position=jnp.arange(length), contiguous=True)
    jaxpr = jax.make_jaxpr(lambda *x: blockwise(*x, encoding, row, row))(*shapes)
    return sum(pairs_of_blocks(jaxpr.jaxpr))


def test_blocks_of_other_chunks_are_skipped():
    nope = posenc_jax.build("nope", DIMS)
    assert visited(nope) == 16 * 17 // 2
    assert visited(nope.replace(chunk=256)) == 16  # blocks of 256
    assert visited(nope.replace(chunk=1024)) == 4 * (4 * 5 // 2)
    assert visited(nope.replace(chunk=1024, window=256)) == 4 * (4 + 3)


@pytest.mark.parametrize("chunked", [False, True])
def test_local_layers_visit_blocks_in_proportion_to_length(chunked, make_model):
    """Pairs of blocks visited by the compiled model at two lengths."""
    encoding = build(window=256, chunked=chunked)
    model = make_model(layers=4)

    def blocks(length):
        tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
        jaxpr = jax.make_jaxpr(lambda t: model(t, encoding))(tokens)
        return pairs_of_blocks(jaxpr.jaxpr)

    near = lambda n: n if chunked else 2 * n - 1  # noqa: E731
    for n in (8, 16):
        *local, masked, single, doubled = blocks(256 * n)
        assert local == [near(n)] * 3
        assert masked + single + doubled == n * (n + 1) // 2


# Layers


def test_a_hybrid_of_rope_with_wide_windows_equals_rope(make_model, make_tokens, forward):
    model, tokens = make_model(layers=4), make_tokens(3 * L)
    hybrid = build(window=3 * L, global_rope=True)
    expected = forward(model, tokens, posenc_jax.build("rope", DIMS))
    np.testing.assert_allclose(forward(model, tokens, hybrid), expected, atol=1e-6)
    chunked = build(window=3 * L, global_rope=True, chunked=True)
    np.testing.assert_allclose(forward(model, tokens, chunked), expected, atol=1e-6)


def test_each_kind_of_layer_has_its_own_base():
    rope = lambda base, **more: posenc_jax.build("rope", DIMS, base=base, **more)  # noqa: E731
    hybrid = build(global_rope=True, local_base=1e4, global_base=1e6, global_keep=0.25)
    np.testing.assert_array_equal(hybrid.layer(0).inv_freq, rope(1e4).inv_freq)
    np.testing.assert_array_equal(hybrid.layer(3).inv_freq, rope(1e6, keep=0.25).inv_freq)
    shared = build(global_rope=True, base=500.0)
    for index in (0, 3):
        np.testing.assert_array_equal(shared.layer(index).inv_freq, rope(500.0).inv_freq)
    assert build(layout="interleaved").layer(0).layout == "interleaved"


def test_an_extension_may_change_global_layers_only():
    hybrid = build(global_rope=True, local_base=1e4, global_base=1e6)
    extended = posenc_jax.extend("yarn:8:layers=global", hybrid, 1.0)
    alone = posenc_jax.extend("yarn", posenc_jax.build("rope", DIMS, base=1e6), 8.0)
    np.testing.assert_array_equal(extended.layer(0).inv_freq, hybrid.layer(0).inv_freq)
    np.testing.assert_array_equal(extended.layer(3).inv_freq, alone.inv_freq)
    assert (extended.layer(0).gain, extended.layer(3).gain) == (1, alone.gain)
    both = posenc_jax.extend("pi", hybrid, 8.0)
    for index in (0, 3):
        slowed = hybrid.layer(index).inv_freq / 8
        np.testing.assert_allclose(both.layer(index).inv_freq, slowed, rtol=1e-6)


def test_temperatures_reach_the_selected_layers():
    cooled = posenc_jax.extend("temperature:factor=1.5:layers=global", build(), 1.0)
    assert [cooled.layer(i).temperature is None for i in range(4)] == [True] * 3 + [False]
    doubled = posenc_jax.extend("temperature:factor=2", cooled, 1.0)
    assert [float(doubled.layer(i).temperature) for i in range(4)] == [2, 2, 2, 3]


def test_first_and_last_layers_may_be_global():
    kinds = lambda e: [e.layer(i).name for i in range(6)]  # noqa: E731
    middle = ["rope", "rope", "nope", "rope"]
    assert kinds(build(LAYERS, first_full=True)) == ["nope", *middle, "rope"]
    assert kinds(build(LAYERS, first_full=True, last_full=True)) == ["nope", *middle, "nope"]
    assert kinds(build(LAYERS)) == ["rope", *middle, "rope"]


@pytest.mark.slow
def test_a_pattern_of_all_layers_fixes_their_number(make_model, make_tokens, forward):
    encoding, tokens = build(LAYERS, last_full=True), make_tokens(L)
    scanned, written = (
        forward(make_model(layers=6, scan=scan), tokens, encoding) for scan in (True, False)
    )
    np.testing.assert_allclose(scanned, written, atol=1e-5)
    with pytest.raises(ValueError, match="'hybrid' was built for 6 layers, but the model has 4"):
        make_model(layers=4)(tokens, encoding)


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
def test_the_receptive_field_matches_the_gradient(chunked, make_model, make_tokens):
    dims = Dims(H, K, DIMS.width, L, layers=3)
    encoding = build(dims, pattern="local", window=4, chunked=chunked)
    assert encoding.receptive_field == (4 if chunked else 3 * 3 + 1) and encoding.reach is None
    model, tokens = make_model(layers=3), make_tokens(L)
    row = Tokens(position=jnp.arange(L), contiguous=True)

    def last(shift):
        x = model.embed(tokens) + shift[None, :, None]
        return jnp.sum(jnp.sin(model.run_blocks(x, encoding, row)[0, -1]))

    reached = jax.jit(jax.grad(last))(jnp.zeros(L)) != 0
    assert int(jnp.sum(reached)) == encoding.receptive_field and bool(reached[-4:].all())


def test_the_receptive_field_is_bounded_only_with_local_layers():
    assert build(LAYERS).receptive_field is None
    assert build(pattern="local").receptive_field is None  # unknown number of layers
    limited = posenc_jax.extend("window:size=3", build(LAYERS, window=5), 1.0)
    assert limited.receptive_field == 6 * 2 + 1


def test_extending_missing_kinds_of_layers_is_refused():
    """An extension without effect does not fit."""
    assert build(pattern="local").kinds_of_layers() == ["local"]
    with pytest.raises(ValueError, match="unknown kind of layers: 'global'"):
        posenc_jax.extend("yarn:2:layers=global", build(pattern="local"), 2.0)
    assert "yarn" not in extensions.fitting(build(pattern="global"))


@pytest.mark.parametrize("chunked", [False, True])
def test_first_tokens_are_not_added_to_windowed_layers(chunked):
    for name in ("lm_infinite", "streaming"):
        assert name not in extensions.fitting(build(chunked=chunked))
        with pytest.raises(ValueError, match="made for rope or DistanceBias without a window"):
            posenc_jax.extend(name, build(chunked=chunked), 2.0)
        rotating = posenc_jax.extend(name, build(chunked=chunked, global_rope=True), 2.0)
        remapped = {kind for kind, layer in rotating.kinds.items() if isinstance(layer, Remapped)}
        assert remapped == {"global"}


# From a configuration and the command line


def read(recipe, *words):
    name, _, size = recipe.partition(":")
    words = [f"--config=configs/{name}.py:{size or 'tiny'}", *words]
    _, config, _ = flags.parse(["train.py", *words])
    return building.plain(load(config), jax.random.key(0))


def test_the_command_line_sets_every_option():
    field = "--config.encoding."
    encoding = read(
        "hybrid",
        *(f"{field}{word}" for word in ("chunked=True", "window=16", "global_rope=True")),
        *(f"{field}{word}" for word in ("local_base=1e3", "global_base=1e6", "last_full=True")),
        *(f"{field}{word}" for word in ("pattern=local,global", "global_keep=turned")),
    )
    assert encoding.pattern == ("local", "global", "local", "global")
    assert (encoding.layer(0).chunk, encoding.layer(1).keep) == (16, "turned")
    assert (encoding.layer(0).base, encoding.layer(1).base) == (1e3, 1e6)
    assert read("rope", f"{field}keep=0.5").keep == 0.5
    assert read("prope", f"{field}keep=turned").keep == "turned"


def test_recipes_of_published_hybrids_build():
    for size, local in (("tiny", 3), ("small", 5)):
        gemma = read(f"hybrid_bases:{size}")
        assert gemma.pattern == ("local",) * local + ("global",)
        assert gemma.layer(local).base == 1e6 and gemma.layer(0).base == 1e4
    cohere = read("hybrid_nope")
    assert cohere.layer(0).layout == "interleaved" and cohere.layer(3).name == "nope"


def test_the_layers_of_a_short_model_bound_its_receptive_field():
    two = Dims(H, K, DIMS.width, L, layers=2)
    assert build(two, pattern="local,global").receptive_field is None
    assert build(two, pattern="local,local,local").receptive_field == 2 * (math.ceil(L / 4) - 1) + 1
