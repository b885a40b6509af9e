"""Attention sinks: a trained logit without value in every softmax, around any encoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import compiled, content, qkv
from sizes import DIMS, L, config_of

import posenc_jax
from posenc_jax import schemes
from posenc_jax.attention import attend, plain
from posenc_jax.attention.regions import by_regions
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.layers import overrides
from posenc_jax.runs import parameters
from posenc_jax.runtime.errors import ConfigError

pytestmark = pytest.mark.sampled

KEY = jax.random.key(0)
TWO = Dims(DIMS.heads, DIMS.head_dim, DIMS.width, L, layers=2)


def build(name, dims=DIMS, sink=True, **options):
    return posenc_jax.build(name, dims, key=KEY, sink=sink, **options)


@pytest.mark.parametrize("name", schemes.names())
def test_a_sink_at_minus_infinity_has_no_effect(name):
    if overrides(posenc_jax.build(name, DIMS, key=KEY), "attend"):
        with pytest.raises(ValueError, match=f"fit encoding '{name}', which has its own attention"):
            build(name)
        return
    encoding = build(name).layer(0)
    encoding = encoding.replace(logit=jnp.full(DIMS.heads, -jnp.inf))
    x, (q, k, v) = jax.random.normal(KEY, (2, 70, DIMS.width)), qkv(70, groups=2)
    length = min(70, encoding.reach or 70)
    features = encoding.read(x[:, :length])
    q, k, v = (a[:, :length] for a in (q, k, v))

    def run(encoding):
        def loss(q, k, v):
            out = attend(q, k, v, encoding, features=features)
            return jnp.sum(jnp.sin(out)), out

        return jax.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)

    ours, theirs = jax.jit(lambda: (run(encoding), run(encoding.inner)))()
    for actual, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("extension", ["none", "self_extend:group=2", "streaming:window=9"])
def test_a_sink_has_the_gradient_of_one_more_column(extension):
    """Blockwise gradients match plain attention with one more softmax column."""
    logit = jnp.array([0.5, -1.0, 3.0, 0.0])
    q, k, v = qkv(40, groups=2)
    rope = posenc_jax.build("rope", DIMS)
    extended = posenc_jax.extend(extension, build("rope"), 1.0)
    alone = posenc_jax.extend(extension, rope, 1.0)

    def ours(logit, q):
        encoding = extended.replace(logit=logit)
        return jnp.sum(jnp.sin(attend(q, k, v, encoding, implementation="blockwise")))

    def theirs(logit, q):
        row = Tokens(position=jnp.arange(40), contiguous=True)
        heads_major = (jnp.swapaxes(jnp.asarray(x), 1, 2) for x in (q, k, v))
        phase = alone.phase(row.position)
        out, logsum = by_regions(plain, *heads_major, alone, row, row, phase=phase)
        column = jnp.broadcast_to(logit[None, :, None], logsum.shape)
        share = jax.nn.softmax(jnp.stack([logsum, column]), axis=0)[0]
        return jnp.sum(jnp.sin(out * share[..., None]))

    actual, expected = (jax.jit(jax.value_and_grad(f, (0, 1)))(logit, q) for f in (ours, theirs))
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4)
    assert np.all(np.abs(actual[1][0]) > 1e-3)


@pytest.mark.parametrize("name", ["nope", "fox", "relative", "hybrid"])
@pytest.mark.parametrize("how", ["plain", "blockwise"])
def test_a_sink_of_tokens_is_a_sink_of_each_query(name, how):
    """With one query it is that query's logit; untrained, it equals the other sink at 0."""
    (q, k, v), x = qkv(40, groups=2), content(2, 40, DIMS.width)
    of_tokens, of_heads = (build(name, sink=sink).layer(0) for sink in ("token", True))
    kernel = jax.random.normal(KEY, of_tokens.kernel.shape)

    def out(encoding, rows=slice(None)):
        features = encoding.read(x)
        own = jax.tree.map(lambda leaf: leaf[:, rows], features)
        options = {} if features is None else {"features": (own, features)}
        return compiled(q[:, rows], k, v, encoding, implementation=how, **options)

    np.testing.assert_allclose(out(of_tokens), out(of_heads), atol=1e-6)
    logits = np.float64(x) @ np.float64(kernel)  # [B, T, H]
    ours = out(of_tokens.replace(kernel=kernel))
    for row in range(2):
        theirs = out(of_heads.replace(logit=jnp.float32(logits[row, -1])), slice(-1, None))
        np.testing.assert_allclose(ours[row, -1:], theirs[row], atol=2e-6)


def test_layers_share_all_but_their_sinks_and_stacks_keep_them():
    encoding = build("t5", TWO)
    assert not np.any(encoding.logit) and encoding.name == "t5"
    assert encoding.inner.table.shape == (32, DIMS.heads)
    stacked = posenc_jax.stack([build("rope"), build("rope")])
    assert stacked.logit.shape == (2, DIMS.heads) and stacked.layer(1).logit.shape == (DIMS.heads,)


def test_a_configuration_enables_sinks():
    config = config_of("t5", **{"encoding.sink": True, "encoding.per_layer": True})
    t5 = parameters.make(config).encoding
    assert t5.logit.shape == (2, 2) and t5.inner.table.shape[0] == 2
    assert t5.layer(1).inner.table.shape == t5.inner.table.shape[1:]
    config = config_of("rope", **{"encoding.sink": True, "encoding_rate": 2.0})
    arrays = parameters.make(config).params()["encoding"]
    assert {name: array.shape for name, array in arrays.items()} == {"logit": (2, 2)}
    parameters.check(config)
    config = config_of("rope", **{"encoding.sink": "token"})
    assert parameters.make(config).params()["encoding"]["kernel"].shape == (2, 16, 2)
    with pytest.raises(ConfigError, match="'rope' has no trained arrays"):
        config_of("rope", **{"encoding.per_layer": True, "encoding.sink": True})
