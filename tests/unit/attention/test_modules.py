"""An encoding inside a custom NNX or Linen module, as in the README."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import posenc_jax
from posenc_jax import schemes

pytestmark = pytest.mark.sampled

DIMS = posenc_jax.Dims(heads=2, head_dim=8, width=16, train_length=16)
STEPS = 5


def built(name):
    return posenc_jax.build(name, DIMS, key=jax.random.key(0))


def mixed(x, qkv, encoding):
    """Attention with the encoding's embeddings and features."""
    encoding = encoding.layer(0)
    x = encoding.embed(x, jnp.arange(x.shape[1]))
    q, k, v = jnp.split(qkv(x).reshape(*x.shape[:2], DIMS.heads, -1), 3, axis=-1)
    return posenc_jax.attention.attend(q, k, v, encoding, features=encoding.read(x))


class InNNX(nnx.Module):
    def __init__(self, encoding, rngs):
        self.qkv = nnx.Linear(DIMS.width, 3 * DIMS.width, rngs=rngs)
        trained, fixed = posenc_jax.partition(encoding)
        self.trained, self.fixed = nnx.data(jax.tree.map(nnx.Param, trained)), nnx.data(fixed)

    @property
    def encoding(self):
        return posenc_jax.combine(nnx.as_pure(self.trained), self.fixed)

    def __call__(self, x):
        return mixed(x, self.qkv, self.encoding)


class InLinen(nn.Module):
    encoding: posenc_jax.Encoding

    @nn.compact
    def __call__(self, x):
        trained, fixed = posenc_jax.partition(self.encoding)
        encoding = posenc_jax.combine(self.param("encoding", lambda key: trained), fixed)
        return mixed(x, nn.Dense(3 * DIMS.width), encoding)


def goal(out):
    return jnp.mean((out - jnp.sin(jnp.arange(out.shape[1]))[None, :, None, None]) ** 2)


def trained_in_nnx(encoding, x, adam):
    model = InNNX(encoding, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, adam, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        optimizer.update(model, nnx.grad(lambda model: goal(model(x)))(model))

    for _ in range(STEPS):
        step(model, optimizer)
    return model.encoding


def trained_in_linen(encoding, x, adam):
    module = InLinen(encoding)
    params = jax.jit(module.init)(jax.random.key(0), x)
    state = adam.init(params)

    @jax.jit
    def step(params, state):
        gradient = jax.grad(lambda params: goal(module.apply(params, x)))(params)
        updates, state = adam.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(STEPS):
        params, state = step(params, state)
    return posenc_jax.combine(params["params"]["encoding"], posenc_jax.partition(encoding)[1])


WAYS = trained_in_nnx, trained_in_linen
CASES = [(name, 0.5) for name in schemes.names()] + [("t5", 0.0), ("rope", 0.0)]


@pytest.mark.parametrize(
    ("name", "decay", "train"),
    [
        pytest.param(*case, way, marks=[] if number % 2 == turn else pytest.mark.slow)
        for number, case in enumerate(CASES)
        for turn, way in enumerate(WAYS)
    ],
)
def test_training_moves_trained_fields_only(name, decay, train):
    encoding = built(name)
    drawn = np.random.default_rng(1).normal(size=(2, DIMS.train_length, DIMS.width))
    x = jnp.asarray(drawn, jnp.float32)
    after = train(encoding, x, optax.adamw(0.01, weight_decay=decay))
    assert jax.tree.structure(after) == jax.tree.structure(encoding)
    mask = jax.tree.leaves(posenc_jax.trained_mask(encoding))
    leaves = zip(jax.tree.leaves(encoding), jax.tree.leaves(after), mask, strict=True)
    for before, now, is_trained in leaves:
        same = np.array_equal(np.asarray(before), np.asarray(now))
        assert same != is_trained


@pytest.mark.parametrize("stacked", [False, True])
def test_combining_the_partition_restores_an_encoding(encoding, stacked):
    encoding = posenc_jax.stack([encoding, encoding]) if stacked else encoding
    trained, fixed = posenc_jax.partition(encoding)
    mask = jax.tree.leaves(posenc_jax.trained_mask(encoding))
    assert len(jax.tree.leaves(trained)) == sum(mask)
    assert len(jax.tree.leaves(fixed)) == len(mask) - sum(mask)
    again = posenc_jax.combine(trained, fixed)
    assert jax.tree.structure(again) == jax.tree.structure(encoding)
    jax.tree.map(np.testing.assert_array_equal, again, encoding)
