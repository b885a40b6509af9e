"""Refusals of invalid attention inputs, and one meaning of positions in models and attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import H, K, build
from sizes import DIMS, VOCAB, L

import models
import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims
from posenc_jax.positions import tokens_of_row

ROPE = build("rope")
ROW = tokens_of_row(ROPE, 1, L)
QKV = [
    jnp.asarray(np.random.default_rng(i).normal(size=(1, L, DIMS.heads, DIMS.head_dim)), "float32")
    for i in range(3)
]
GAPPED = np.asarray([0, 1, 2, 3, 9, 10, 11, 20, 21, 22, 23, 30, 31, 32, 40, 41])
TWO = np.asarray([[0] * 7 + [1] * 9])
QUICK = {("fire", "float32"), ("relative", "float64")}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_real_inputs_keep_their_dtype(dtype):
    with jax.enable_x64(dtype == "float64"):
        out = jax.eval_shape(lambda *x: attend(*x, ROPE), *(x.astype(dtype) for x in QKV))
        assert out.dtype == dtype


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[] if (name, dtype) in QUICK else pytest.mark.slow)
        for name in ("fire", "relative", "dape")
        for dtype in ("float32", "float64")
    ],
)
def test_arrays_of_an_encoding_may_be_float64(name, dtype):
    """jax.random draws float64 where it is enabled."""
    with jax.enable_x64(True):
        encoding = build(name)
        key = jax.random.key(1)
        q, k, v = jax.random.normal(key, (3, 1, 160, DIMS.heads, DIMS.head_dim), dtype)
        x = jax.random.normal(key, (1, 160, DIMS.width), dtype)

        def loss(encoding, how):
            out = attend(q, k, v, encoding, features=encoding.read(x), implementation=how)
            return jnp.sum(out * v), out

        run = jax.jit(jax.value_and_grad(loss, has_aux=True, allow_int=True), static_argnums=1)
        (_, ours), own = run(encoding, "blockwise")
        (_, plain), expected = run(encoding, "plain")
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, plain, atol=2e-5)
        for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(expected), strict=True):
            if one.dtype != jax.dtypes.float0:
                np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("name", ["logn", "rerope"])
def test_positions_may_be_negative(name):
    encoding = posenc_jax.extend(name, ROPE, 1.0)
    place = np.arange(L) - 4
    out = jax.jit(lambda: attend(*QKV, encoding, q_positions=place, k_positions=place))()
    assert np.isfinite(out).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({name: QKV[0].astype(dtype)}, f"takes float32 or bfloat16, .*; {name} is {dtype}")
            for name in "qkv"
            for dtype in ("int32", "bool", "complex64", "float16", "float8_e4m3fn")
        ),
        ({"q": QKV[0][:, :0], "k": QKV[0][:, :0], "v": QKV[0][:, :0]}, "with no empty axis"),
        ({"k": QKV[0][:, :, :0], "v": QKV[0][:, :, :0]}, "with no empty axis"),
        ({"q": QKV[0].tolist()}, "q must be a JAX or NumPy array; got a list"),
        ({"v": None}, "v must be a JAX or NumPy array; got a NoneType"),
        ({"encoding": "rope"}, "encoding must be made by posenc_jax.build; got 'rope'"),
        ({"window": 10**11}, "window must be at most 16,777,216; got 100,000,000,000"),
        ({"segments": jnp.full((1, L), jnp.nan)}, "segments must be integers or booleans"),
        ({"segments": TWO, "k_positions": jnp.arange(L) % 5}, "must ascend within a document"),
        ({x: jnp.zeros((1, L, 3, K)) for x in "kv"}, "H a multiple of G"),
        ({"window": 0}, "window must be a whole number of at least 1"),
        ({"q_positions": jnp.arange(L - 1)}, r"q_positions must be \[16\] or \[1, 16\]"),
        ({"k_positions": jnp.array([5])}, r"k_positions must be \[16\] or \[1, 16\]"),
        ({"k_positions": jnp.arange(L) % 5}, "restart within a row, give segments"),
        ({"k_positions": 2**24 + jnp.arange(L)}, "k_positions must be .* 16,777,216 from 0"),
        ({"q_positions": 2**24 + 1.0 * jnp.arange(L)}, "got 16777232.0"),
        ({"q_positions": 2**32 + np.arange(L)}, "q_positions must be finite .* got 4294967296"),
        ({"q_positions": np.uint32(2**31) + np.arange(L, dtype="uint32")}, "got 2147483648"),
        ({"k_positions": -(2**40) + np.arange(L)}, "got -1099511627776"),
        ({"q_positions": jnp.full(L, jnp.nan)}, "q_positions must be finite .* got nan"),
        ({"k_positions": jnp.full(L, jnp.inf)}, "k_positions must be finite .* got inf"),
        ({"segments": 2**32 * np.arange(L)}, "segments must fit into 32 bits; got 64424509440"),
        ({"segments": TWO[:, :3]}, "segments must be"),
        ({"q": jnp.zeros((1, L, H, K), jnp.float16)}, "float16 would overflow"),
        ({"q": jnp.zeros((L, H, K))}, r"q must be \[B, Q, H, K\]"),
        ({"encoding": build("alibi", Dims(2, K, 32, L))}, "'alibi' was built for heads=2"),
        ({"encoding": build("rope", Dims(H, 4, 32, L))}, "'rope' was built for head_dim=4"),
        ({"q": jnp.zeros((1, L + 1, H, K))}, "give q_positions"),
        ({"encoding": posenc_jax.stack([ROPE] * 3)}, "stacked over 3 layers; attention takes one"),
        *(
            ({"encoding": build(name)}, rf"'{name}' .* x, row = posenc_jax.place\(x, encoding, key")
            for name in ("sinusoidal", "learned", "randomized")
        ),
        ({"row": ROW, "segments": TWO}, "no positions or segments beside it"),
        ({"row": ROW, "k_positions": jnp.arange(L)}, "no positions or segments beside it"),
        ({"row": ROW} | {x: jnp.zeros((1, 3, H, K)) for x in "qkv"}, "with the 3 keys"),
        ({"row": jnp.arange(L)}, "row must be that of posenc_jax.place"),
    ],
)
def test_invalid_inputs_are_refused_with_a_reason(changes, message):
    given = dict(zip("qkv", QKV, strict=True)) | {"encoding": ROPE} | changes
    with pytest.raises(ValueError, match=message):
        attend(**given)


@pytest.fixture(scope="module")
def model():
    sizes = {"layers": 1, "width": DIMS.width, "heads": DIMS.heads, "vocab": VOCAB}
    return models.Transformer(sizes, jax.random.key(0))


@pytest.fixture
def tokens(make_tokens):
    return make_tokens(L)


@pytest.mark.parametrize("options", [{}, {"segments": TWO}, {"window": 5}], ids=str)
@pytest.mark.parametrize("extension", ["none", "rerope:w=4", "self_extend:window=4:group=2"])
@pytest.mark.sampled
def test_positions_with_gaps_mean_the_same_in_a_model_and_in_attend(
    model, tokens, extension, options
):
    encoding = posenc_jax.extend(extension, ROPE, 1.0)

    @jax.jit
    def both(model):
        block, x = jax.tree.map(lambda leaf: leaf[0], model.blocks), model.embed(tokens)
        normed = block.attention_norm(x)
        q, k, v = (
            project(normed).reshape(*tokens.shape, DIMS.heads, DIMS.head_dim)
            for project in (block.attention.q, block.attention.k, block.attention.v)
        )
        given = {"q_positions": GAPPED, "k_positions": GAPPED} | options
        out = attend(q, k, v, encoding, **given)
        x = x + block.attention.out(out.reshape(x.shape))
        hidden = model.norm(x + block.mlp(block.mlp_norm(x)))
        actual = model(tokens, encoding, positions=GAPPED, **options)
        return actual, hidden @ model.embed.embedding[...].T

    np.testing.assert_allclose(*both(model), rtol=1e-5, atol=1e-5)


def test_a_model_reads_documents_by_positions_and_segments_of_any_kind(model, tokens, forward):
    restarting = np.where(TWO[0] == 0, np.arange(L), np.arange(L) - 7)
    alone = forward(model, tokens, ROPE, segments=TWO)
    given = forward(model, tokens, ROPE, segments=TWO, positions=restarting)
    np.testing.assert_allclose(given, alone, rtol=1e-5, atol=1e-5)
    as_boolean = forward(model, tokens, ROPE, segments=TWO.astype(bool))
    np.testing.assert_array_equal(as_boolean, alone)
