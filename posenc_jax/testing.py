"""Properties of an encoding: `check_encoding(build)` tests those of one's own."""

import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import models
from posenc_jax import schemes
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims, Encoding, combine, partition, trained_mask
from posenc_jax.layers import overrides, stack
from posenc_jax.positions import tokens_of_row

L = 16
VOCAB = 19
DIMS = Dims(heads=4, head_dim=8, width=32, train_length=L)
FAR = 4 * L
DECODED = 2 * L + 9  # tokens
CUTS = (0, 13, 26, 27, 28, DECODED)  # pieces of one size, so of few programs, and single tokens


def check_encoding(build: Callable[..., Encoding], **options) -> None:
    """Test every property of the encoding that a `build` makes with options; the error has a note
    of the property."""
    parameters = inspect.signature(build).parameters.values()
    usual = {p.name: p.default for p in parameters if p.default is not p.empty}
    json.dumps(usual | options)  # a run keeps them in its config.json
    key = jax.random.key(3)
    encoding = schemes.built(build.__module__, build, DIMS, key, options)
    for check in PROPERTIES:
        try:
            check(encoding)
        except Exception as error:
            error.add_note(f"{encoding.name}: {check.__doc__}")
            raise


@functools.cache
def make_model(**options) -> models.Transformer:
    fields: Any = {"layers": 2, "width": DIMS.width, "heads": DIMS.heads, "vocab": VOCAB} | options
    return models.Transformer(models.Config(**fields), jax.random.key(0))


@functools.partial(jax.jit, static_argnames="window")
def forward(model, tokens, encoding, **options) -> jax.Array:
    """A compiled forward pass that tests share, to save compilation time."""
    return model(tokens, encoding, **options)


@jax.jit
def read_next(model, tokens, encoding, cache, counts=None):
    return model.step(tokens, encoding, cache, counts)


def make_tokens(length: int, batch: int = 1) -> jax.Array:
    drawn = np.random.default_rng(length).integers(0, VOCAB, (batch, length))
    return jnp.asarray(drawn, jnp.int32)


def drawn(encoding: Any, seed: int = 0) -> Any:
    """Redraw the trained leaves of an encoding at random, so that none of them is neutral."""
    leaves, structure = jax.tree.flatten(encoding)
    mask = jax.tree.leaves(trained_mask(encoding))
    rng = np.random.default_rng(seed)
    new = [
        jnp.asarray(rng.normal(size=jnp.shape(leaf)), jnp.float32) if is_trained else leaf
        for leaf, is_trained in zip(leaves, mask, strict=True)
    ]
    return jax.tree.unflatten(structure, new)


def equations(jaxpr) -> Iterator[Any]:
    """Yield every operation of a program before compilation, also inside loops and calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def no_logit_depends_on_a_later_token(encoding: Encoding) -> None:
    """A logit depends on every token up to its own, and on no later one."""
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
        assert np.all(reached[at + 1 :] == 0), np.flatnonzero(reached)
        assert np.all(reached[: at + 1] != 0), np.flatnonzero(reached)


def one_query_at_a_time_equals_all_at_once(encoding: Encoding) -> None:
    """A query at its position gets what it gets among all queries of a row."""
    encoding = drawn(encoding).layer(0)
    shape = 3, 2, L, DIMS.heads, DIMS.head_dim
    q, k, v = jax.random.normal(jax.random.key(0), shape)
    features, row = None, tokens_of_row(encoding, 2, L)
    if overrides(encoding, "read"):
        features = encoding.read(jax.random.normal(jax.random.key(7), (2, L, DIMS.width)))
    whole, last = jax.jit(
        lambda: [attend(part, k, v, encoding, row, features=features) for part in (q, q[:, -3:])]
    )()
    np.testing.assert_allclose(last, whole[:, -3:], atol=2e-5)
    cut = lambda at: lambda x: jax.lax.dynamic_slice_in_dim(x, at, 1, axis=1)  # noqa: E731
    single_query = jax.jit(
        lambda at: attend(
            cut(at)(q),
            k,
            v,
            encoding,
            q_positions=row.position[at][None],
            k_positions=row.position,
            features=None if features is None else (jax.tree.map(cut(at), features), features),
        )
    )
    for at in range(L):
        np.testing.assert_allclose(single_query(at)[:, 0], whole[:, at], atol=2e-5)


def gradients_reach_exactly_the_trained_fields(encoding: Encoding, packed: bool = True) -> None:
    """Gradients are finite, and not zero for every trained array."""
    model, tokens = make_model(), make_tokens(L, batch=2)
    segments = jnp.array([[0] * 5 + [1] * (L - 5)] * 2) if packed else None

    def loss(encoding):
        logits = model(tokens, encoding, key=jax.random.key(1), segments=segments)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)
        return -jnp.mean(picked)

    # All gradients: fixed arrays have one too, which training does not use.
    gradient_of = jax.jit(jax.grad(lambda *parts: loss(combine(*parts)), (0, 1), allow_int=True))
    gradients = gradient_of(*partition(encoding))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        finite = gradient.dtype == jax.dtypes.float0 or np.all(np.isfinite(gradient))
        assert finite, f"gradient of {jax.tree_util.keystr(path)} is not finite"
    assert len(jax.tree.leaves(gradients[0])) == sum(jax.tree.leaves(trained_mask(encoding)))
    later = jax.tree.leaves(gradient_of(*partition(drawn(encoding)))[0])  # factors may begin as 0
    named = jax.tree_util.tree_leaves_with_path(gradients[0])
    for (path, gradient), other in zip(named, later, strict=True):
        is_zero = not (np.any(gradient != 0) or np.any(other != 0))
        assert not is_zero, f"gradient of {jax.tree_util.keystr(path)} is zero"


def word_order_reaches_the_last_row(encoding: Encoding) -> None:
    """The last token's logits depend on the order of the others."""
    model, tokens = make_model(layers=1), make_tokens(L)
    encoding = drawn(encoding)
    order = jnp.array([*np.random.default_rng(0).permutation(L - 1), L - 1])
    before = forward(model, tokens, encoding)[0, -1]
    after = forward(model, tokens[:, order], encoding)[0, -1]
    change = float(jnp.max(jnp.abs(after - before)))
    assert change > 1e-3, f"they change by {change:.2g}"


def positions_stay_float32_in_a_bfloat16_model(encoding: Encoding) -> None:
    """Positions, angles and biases are float32 in a model of bfloat16."""
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
    places = jnp.arange(L)
    layer = encoding.layer(0)
    bias, phase = layer.bias(places, places), layer.phase(places)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((bias, phase)))
    assert bias is None or bias.shape == (DIMS.heads, L, L), bias.shape


def leaves_are_strongly_typed_float32(encoding: Encoding) -> None:
    """Arrays are float32, and not of a weak type, which would compile another program."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(encoding):
        assert leaf.dtype == jnp.float32, f"{jax.tree_util.keystr(path)} is {leaf.dtype}"
        assert not leaf.weak_type, f"{jax.tree_util.keystr(path)} is weak"


def packed_documents_do_not_see_each_other(encoding: Encoding) -> None:
    """A document of a packed row is read as if it stood alone."""
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


def a_stack_of_equal_layers_equals_the_shared_encoding(encoding: Encoding) -> None:
    """Layers with equal arrays of their own compute what a shared encoding computes."""
    model, tokens = make_model(), make_tokens(L)
    stacked = stack([encoding, encoding])
    np.testing.assert_allclose(
        forward(model, tokens, stacked), forward(model, tokens, encoding), atol=1e-5
    )
    assert jax.tree.structure(stacked.layer(1)) == jax.tree.structure(encoding.layer(1))


def each_layer_of_a_stack_has_its_own_numbers(encoding: Encoding) -> None:
    """A scan over layers gives each its own arrays, as a loop does."""
    first, second = drawn(encoding, 0), drawn(encoding, 1)
    tokens = make_tokens(L)
    stacked, swapped = stack([first, second]), stack([second, first])
    scanned = forward(make_model(), tokens, stacked)
    written_out = forward(make_model(scan=False), tokens, stacked)
    np.testing.assert_allclose(written_out, scanned, atol=1e-5)
    has_trained_leaves = any(jax.tree.leaves(trained_mask(encoding)))
    differs = bool(jnp.any(jnp.abs(forward(make_model(), tokens, swapped) - scanned) > 1e-4))
    assert differs == has_trained_leaves


def positions_beyond_the_reach_are_refused(encoding: Encoding) -> None:
    """A row longer than the reach, if there is one, is refused."""
    reach = encoding.reach
    if reach is None:
        return
    _refused(lambda: encoding.positions(reach + 1))
    if reach < 1000:
        beyond = reach + jnp.arange(L)
        _refused(lambda: make_model()(make_tokens(reach + 1), encoding))
        _refused(lambda: make_model()(make_tokens(L), encoding, positions=beyond))
        packed = (jnp.arange(reach + 3) >= reach)[None]
        logits = forward(make_model(), make_tokens(packed.size), encoding, segments=packed)
        assert jnp.all(jnp.isfinite(logits))  # each document is within the reach
        row = make_tokens(reach + 3)
        _refused(lambda: make_model()(row, encoding, segments=jnp.zeros(row.shape, int)))


def _refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except ValueError as error:
        assert "reaches" in str(error), error
    else:
        raise AssertionError("it is read")


def a_row_by_pieces_equals_the_full_pass(encoding: Encoding) -> None:
    """Decoding with a cache computes what a pass over the whole row computes."""
    if not encoding.consecutive():  # positions depend on the length, so there is no cache
        return
    encoding = drawn(encoding)
    tokens = make_tokens(min(encoding.reach or DECODED, DECODED), batch=2)
    equal_by_pieces(make_model(), encoding, tokens, limit=3e-4)


def equal_by_pieces(model, encoding, tokens, limit: float = 2e-5, cuts=CUTS) -> None:
    expected = forward(model, tokens, encoding)
    for rotated in {False, models.rotates_once(model.config, encoding)}:
        logits, _ = read_by_pieces(model, encoding, tokens, cuts, rotated=rotated)
        np.testing.assert_allclose(logits, expected, rtol=limit, atol=limit)


def read_by_pieces(model, encoding, tokens, cuts=CUTS, **options) -> tuple[jax.Array, models.Cache]:
    cache = models.init_cache(model.config, encoding, len(tokens), tokens.shape[1], **options)
    logits = []
    for first, last in itertools.pairwise(sorted({min(c, tokens.shape[1]) for c in cuts})):
        out, cache = read_next(model, tokens[:, first:last], encoding, cache)
        logits.append(out)
    return jnp.concatenate(logits, axis=1), cache


PROPERTIES = (
    leaves_are_strongly_typed_float32,
    no_logit_depends_on_a_later_token,
    one_query_at_a_time_equals_all_at_once,
    a_row_by_pieces_equals_the_full_pass,
    gradients_reach_exactly_the_trained_fields,
    word_order_reaches_the_last_row,
    positions_stay_float32_in_a_bfloat16_model,
    packed_documents_do_not_see_each_other,
    a_stack_of_equal_layers_equals_the_shared_encoding,
    each_layer_of_a_stack_has_its_own_numbers,
    positions_beyond_the_reach_are_refused,
)
