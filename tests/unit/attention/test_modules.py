"""The README's lines in NNX and Linen modules."""

import re
import textwrap
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from running import ROOT
from sizes import DIMS, VARIANTS, L

import posenc_jax
from posenc_jax import schemes, stack

STEPS = 5
README = (ROOT / "README.md").read_text()
SNIPPET = re.search(r"## In your own Flax model\n\n```python\n(.*?)```", README, re.DOTALL)
# What stands in the README below each comment, and in a module around it.
INIT, NNX, LINEN, EMBEDDED, LAYER = re.split(r"(?m)^# .*\n", SNIPPET[1])[1:]  # pyright: ignore
MODULES = """
class InNNX(nnx.Module):
    def __init__(self, encoding):
        trained, fixed = posenc_jax.partition(encoding)
{init}

    def __call__(self, tokens, key=None):
{nnx}
        return model(tokens, encoding, key)


class InLinen(nn.Module):
    encoding: posenc_jax.Encoding

    @nn.compact
    def __call__(self, tokens, key=None):
        trained, fixed = posenc_jax.partition(self.encoding)
{linen}
        return model(tokens, encoding, key)


def model(tokens, encoding, key):
    x = weights.read(tokens)
{embedded}
    for i in range(weights.config.layers):
        block, inputs = weights._block(i), x
        x = block.read(inputs)
        flat = x.reshape(-1, x.shape[-1])
        q, (k, v) = block.attention.queries(flat, len(x)), block.attention.held(flat, len(x))
        q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
{layer}
        x = inputs.reshape(flat.shape) + block.attention.out(out.reshape(flat.shape))
        x = (x + block.mlp(block.mlp_norm(x))).reshape(inputs.shape)
    return weights.logits(weights.norm(x))
"""
SOURCE = MODULES.format(
    init=textwrap.indent(INIT, 8 * " "),
    nnx=textwrap.indent(NNX, 8 * " "),
    linen=textwrap.indent(LINEN, 8 * " "),
    embedded=textwrap.indent(EMBEDDED, 4 * " "),
    layer=textwrap.indent(LAYER, 8 * " "),
)


def modules(weights):
    """The modules of the README around the arrays of a model of ours."""
    space = {"jax": jax, "nnx": nnx, "nn": nn, "posenc_jax": posenc_jax, "weights": weights}
    exec(compile(SOURCE, "README.md", "exec"), space)  # noqa: S102
    return SimpleNamespace(**space)


def from_nnx(weights, encoding, tokens, key):
    return nnx.jit(lambda module: module(tokens, key))(modules(weights).InNNX(encoding))


def from_linen(weights, encoding, tokens, key):
    module = modules(weights).InLinen(encoding)
    parameters = jax.jit(module.init)(jax.random.key(0), tokens)
    return jax.jit(module.apply)(parameters, tokens, key)


def one_of_two(cases, both=(), ways=(from_nnx, from_linen)):
    """Every case in NNX or in Linen; the other way is slow, except in cases that take both."""
    return [
        pytest.param(
            case, way, marks=() if number % 2 == turn or case in both else pytest.mark.slow
        )
        for number, case in enumerate(cases)
        for turn, way in enumerate(ways)
    ]


@pytest.mark.parametrize(
    ("encoding", "way"),
    one_of_two([*schemes.names(), *VARIANTS], ("sinusoidal", "learned", "randomized")),
    indirect=["encoding"],
)
def test_the_lines_of_the_readme_make_our_own_model(
    encoding, way, drawn, make_model, forward, make_tokens
):
    """In training, where some encodings draw positions, and in evaluation; with other arrays in
    each layer too."""
    each = stack([drawn(encoding, seed) for seed in range(max(2, encoding.period))])
    weights, tokens = make_model(layers=each.layers), make_tokens(L, batch=2)
    for used, key in ((drawn(encoding), jax.random.key(5)), (each, None)):
        expected = forward(weights, tokens, used, key=key)
        out = way(weights, used, tokens, key)
        np.testing.assert_allclose(out, expected, atol=1e-4, rtol=1e-4)


def goal(logits):
    return jnp.mean((logits - jnp.sin(jnp.arange(logits.shape[1]))[None, :, None]) ** 2)


def trained_in_nnx(weights, encoding, tokens, adam):
    module = modules(weights).InNNX(encoding)
    optimizer = nnx.Optimizer(module, adam, wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer):
        optimizer.update(module, nnx.grad(lambda module: goal(module(tokens)))(module))

    for _ in range(STEPS):
        step(module, optimizer)
    return posenc_jax.combine(nnx.as_pure(module.trained), module.fixed)


def trained_in_linen(weights, encoding, tokens, adam):
    module = modules(weights).InLinen(encoding)
    params = jax.jit(module.init)(jax.random.key(0), tokens)
    state = adam.init(params)

    @jax.jit
    def step(params, state):
        gradient = jax.grad(lambda params: goal(module.apply(params, tokens)))(params)
        updates, state = adam.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(STEPS):
        params, state = step(params, state)
    return posenc_jax.combine(params["params"]["encoding"], posenc_jax.partition(encoding)[1])


CASES = [(name, 0.5) for name in schemes.names()] + [("t5", 0.0), ("rope", 0.0)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("case", "train"), one_of_two(CASES, ways=(trained_in_nnx, trained_in_linen))
)
def test_training_moves_trained_fields_only(case, train, make_model, make_tokens):
    name, decay = case
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(0))
    adam = optax.adamw(0.01, weight_decay=decay)
    after = train(make_model(layers=1), encoding, make_tokens(L, batch=2), adam)
    assert jax.tree.structure(after) == jax.tree.structure(encoding)
    mask = jax.tree.leaves(posenc_jax.trained_mask(encoding))
    leaves = zip(jax.tree.leaves(encoding), jax.tree.leaves(after), mask, strict=True)
    for before, now, is_trained in leaves:
        same = np.array_equal(np.asarray(before), np.asarray(now))
        assert same != is_trained


@pytest.mark.sampled
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
