"""Attention and its gradients against full float64 attention, for every encoding."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import close
from sizes import DIMS

import posenc_jax
from posenc_jax import schemes
from posenc_jax.attention import attend, attention, blockwise, phase_between, plain
from posenc_jax.encoding import Tokens, trained_mask
from posenc_jax.layers import overrides
from posenc_jax.testing import equations

pytestmark = pytest.mark.sampled

B, H, K = 2, DIMS.heads, DIMS.head_dim
SLOW = pytest.mark.slow


def build(name, length, **options):
    dims = posenc_jax.Dims(H, K, DIMS.width, max(length, 2))
    encoding = posenc_jax.build(name, dims, key=jax.random.key(5), **options).layer(0)
    mask = jax.tree.leaves(trained_mask(encoding))
    leaves, tree = jax.tree.flatten(encoding)
    rng = np.random.default_rng(6)
    moved = [  # no trained field is then neutral
        leaf + jnp.asarray(0.3 * rng.normal(size=jnp.shape(leaf)), leaf.dtype)
        if is_trained
        else leaf
        for leaf, is_trained in zip(leaves, mask, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


def inputs(length, queries, groups, dtype=jnp.float32):
    rng = np.random.default_rng(length)
    rows, keys = (B, H, queries, K), (B, groups, length, K)
    q, k, v = (jnp.asarray(rng.normal(size=shape), dtype) for shape in (rows, keys, keys))
    return q, k, v, jnp.asarray(rng.normal(size=rows), jnp.float32)


def full(q, k, v, encoding, q_tokens, k_tokens, *, phase):
    """Full attention in the precision of its inputs."""
    if phase is not None:

        def turned(x, cos, sin):
            if phase.layout == "polar":
                length = jnp.log1p(jnp.exp(x))
                return jnp.concatenate([length * cos, length * sin], axis=-1)
            pairs = cos.shape[-1]
            a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
            return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)

        q, k = turned(q, phase.q_cos, phase.q_sin), turned(k, phase.k_cos, phase.k_sin)
    k, v = (jnp.repeat(x, H // k.shape[1], axis=1) for x in (k, v))
    scores = jnp.einsum("bhqk,bhsk->bhqs", q, k) / q.shape[-1] ** 0.5
    scale = encoding.query_scale(q_tokens.position)
    if scale is not None:
        by_head = scale if scale.ndim == 3 else jnp.atleast_2d(scale)[:, None]
        scores = scores * by_head[..., None]
    bias = encoding.bias(q_tokens, k_tokens)
    scores = encoding.logits(scores, bias)
    queries, keys = scores.shape[2:]
    back = jnp.arange(keys - queries, keys)[:, None] - jnp.arange(keys)[None, :]
    seen = (back >= 0) & (back < (encoding.narrowed() or keys))
    seen = seen[None, None]
    if k_tokens.document is not None:
        same = q_tokens.document[:, None, :, None] == k_tokens.document[:, None, None, :]
        seen = seen & same
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqs,bhsk->bhqk", weights, v)


def setting(name, length, *, queries=None, groups=H, window=None, cut=None, **options):
    """Return the inputs of both implementations; a second document begins at `cut`."""
    queries, encoding = queries or length, build(name, length, **options)
    positions = np.arange(length)
    documents = None, None
    if cut is not None:
        positions = np.r_[0:cut, 0 : length - cut]
        row = np.tile(np.arange(length) >= cut, (B, 1)).astype(np.int32)
        documents = jnp.asarray(row[:, length - queries :]), jnp.asarray(row)
    k_positions = jnp.asarray(positions)
    q_positions = k_positions[length - queries :]
    if cut is not None:
        q_positions, k_positions = (jnp.tile(x, (B, 1)) for x in (q_positions, k_positions))
    phase = phase_between(encoding, q_positions, k_positions)
    features = None, None
    if overrides(encoding, "read"):
        whole = encoding.read(jax.random.normal(jax.random.key(9), (B, length, DIMS.width)))
        features = jax.tree.map(lambda x: x[:, length - queries :], whole), whole
    sides = [
        Tokens(position=p, document=d, features=f, contiguous=True)
        for p, d, f in zip((q_positions, k_positions), documents, features, strict=True)
    ]
    given = dict(zip(("q_tokens", "k_tokens"), sides, strict=True))
    window = None if window is None else int(window)
    return encoding.windowed(window), given | {"phase": phase}, inputs(length, queries, groups)


def check(name, length, limit=2e-5, **options):
    encoding, given, (q, k, v, cotangent) = setting(name, length, **options)
    features = given["q_tokens"].features, given["k_tokens"].features

    def loss(way):
        def run(q, k, v, encoding, features):
            sides = {
                name: given[name].replace(features=carried)
                for name, carried in zip(("q_tokens", "k_tokens"), features, strict=True)
            }
            phase = phase_between(encoding, *(side.position for side in sides.values()))
            out = way(q, k, v, encoding, **sides, phase=phase)
            out = out if way is full else out[0]  # without its log-sums
            return jnp.sum(out * cotangent), out

        return jax.jit(jax.value_and_grad(run, (0, 1, 2, 3, 4), has_aux=True))

    given_arrays = q, k, v, encoding, features
    with jax.enable_x64(True):
        double = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), given_arrays)
        (_, expected), exact = jax.tree.map(np.asarray, loss(full)(*double))
    assert expected.dtype == np.float64
    # The exact gradient of a query that sees only itself is 0; rounding errors sum over queries,
    # most in T5's table, which is multiplied by sqrt(K).
    rounding = 6e-5 if name == "t5" else 3e-5
    for way in (blockwise, plain):
        (_, out), gradients = loss(way)(*given_arrays)
        np.testing.assert_allclose(out, expected, atol=limit)
        for ours, right in zip(*map(jax.tree.leaves, (gradients, exact)), strict=True):
            largest, error = (np.abs(x).max(initial=0) for x in (right, ours - right))
            assert error <= 1e-4 * largest + rounding, (way, ours.shape, error, largest)


@pytest.mark.parametrize("name", schemes.names())
@pytest.mark.parametrize(
    "length", [100, *(pytest.param(n, marks=SLOW) for n in (1, 2, 63, 64, 65, 200, 1024))]
)
def test_attention_matches_full_attention(name, length):
    check(name, length)


@pytest.mark.parametrize(
    ("name", "length", "options", "loop"),
    [
        pytest.param(*case, loop, marks=[] if loop == quick else SLOW)
        for *case, quick in [
            ("rope", 65, {"window": 7}, False),
            ("alibi", 200, {"window": 64, "groups": 2}, True),
            ("t5", 200, {"cut": 70}, False),
            ("fire", 200, {"cut": 150, "window": 100}, True),
            ("kerple_log", 200, {"queries": 3}, False),
            ("rope", 200, {"queries": 130, "groups": 1}, True),
            ("t5", 330, {"groups": 2}, True),  # two whole blocks at once, and one
            ("rope", 330, {"queries": 200, "window": 300}, True),
            ("relative", 150, {"window": 70, "cut": 60, "groups": 2, "extent": 50}, False),
            *(
                ("dape", 200, {"inner": inner, "units": 5, "groups": 2, "limit": 5e-6}, False)
                for inner in ("kerple_log", "rope")
            ),
            *(
                ("fox", 150, {"inner": "rope", "gate": gate, "groups": 2, "limit": 1e-5}, True)
                for gate in ("full", "bias_only", "fixed")
            ),
            ("ssmax", 100, {"inner": "alibi", "limit": 2e-6}, False),
            ("ssmax", 100, {"inner": "alibi", "kind": "inkling", "a": 0.5, "limit": 2e-6}, False),
        ]
        for loop in (True, False)
    ],
)
def test_attention_matches_with_windows_documents_groups_and_options(
    name, length, options, loop, monkeypatch
):
    if loop:
        monkeypatch.setattr(sys.modules[blockwise.__module__], "UNROLLED", 0)
    check(name, length, **options)


@pytest.mark.parametrize("window", [None, 200])
def test_blocks_that_given_positions_hide_are_not_visited(window):
    """Their values are NaN, which would reach the output even with a weight of 0."""
    length, first, queries = 1024, 512, 128
    q, k, v, _ = inputs(length, queries, H)
    hidden = np.arange(length) >= first + queries
    if window is not None:
        hidden |= np.arange(length) < first - 256
    v = jnp.where(hidden[None, None, :, None], jnp.nan, v)
    encoding, places = build("rope", length).windowed(window), jnp.arange(length)
    sides = [Tokens(position=p, order=p) for p in (places[first : first + queries], places)]
    phase = phase_between(encoding, sides[0].position, places)

    @jax.jit
    def both(q, k, v):
        clean = jnp.where(jnp.isnan(v), 0.0, v)
        out, _ = blockwise(q, k, v, encoding, *sides, phase=phase, block=128)
        return out, plain(q, k, clean, encoding, *sides, phase=phase)[0]

    np.testing.assert_allclose(*both(q, k, v), atol=3e-6)


def test_blocks_that_no_query_sees_are_not_visited():
    """Blocks of 256, of which a row of 4096 has 16; those in two regions count twice."""
    nope, rope = build("nope", 1024), build("rope", 1024)
    extended = functools.partial(posenc_jax.extend, encoding=rope, scale=4.0)
    for encoding, blocks in (
        (nope, 16 * 17 // 2),
        (nope.replace(window=256), 16 + 15),
        (nope.replace(chunk=256), 16),
        (nope.replace(chunk=1024), 4 * (4 * 5 // 2)),
        (nope.replace(chunk=1024, window=256), 4 * (4 + 3)),
        (extended("streaming:window=256"), 16 + 15 + 15),  # the window and the first tokens
        (extended("rerope:w=256"), 16 * 17 // 2 + 15),
        (extended("self_extend:window=1024:group=4"), 16 * 17 // 2 + 12),
    ):
        shapes = [jax.ShapeDtypeStruct((1, 4096, H, K), jnp.float32)] * 3
        jaxpr = jax.make_jaxpr(lambda *x, encoding=encoding: attend(*x, encoding))(*shapes)
        pairs = 0
        for loop in equations(jaxpr.jaxpr):
            if loop.primitive.name == "scan":
                inside = equations(loop.params["jaxpr"].jaxpr)
                scores = next(e for e in inside if e.primitive.name == "dot_general")
                pairs += loop.params["length"] * scores.outvars[0].aval.shape[0]
        assert pairs == blocks


def test_values_may_have_another_size_than_keys():
    q, k, v, _ = inputs(130, 130, 2)
    v, rope = jnp.concatenate([v, v[..., :3]], axis=-1), build("rope", 130)
    row = Tokens(position=jnp.arange(130), contiguous=True)
    weights = jnp.cos(jnp.arange(K + 3.0))

    def output(compute, *qkv):
        out, _ = compute(*qkv, rope, row, row, phase=rope.phase(row.position))
        return (out @ weights).sum(), out

    gradient = jax.jit(jax.grad(output, argnums=(1, 2, 3), has_aux=True), static_argnums=0)
    ours, theirs = (gradient(compute, q, k, v) for compute in (blockwise, plain))
    assert theirs[1].shape == (B, H, 130, K + 3)
    close(theirs, ours, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["t5", "fire", pytest.param("nope", marks=SLOW)])
def test_bfloat16_is_as_exact_as_in_plain_attention(name):
    """The error is at most twice that of plain attention, for output and gradients."""
    encoding, sides, (q, k, v, cotangent) = setting(name, 200)
    low = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    exact = [x.astype(jnp.float32) for x in low]

    def run(how, given):
        def loss(q, k, v):
            out, _ = how(q, k, v, encoding, **sides)
            return jnp.sum(out.astype(jnp.float32) * cotangent), out

        gradient = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))
        (_, out), gradients = gradient(*given)
        return [np.asarray(x, np.float32) for x in (out, *gradients)]

    right = run(plain, exact)
    for ours, theirs, correct in zip(run(blockwise, low), run(plain, low), right, strict=True):
        assert np.abs(ours - correct).mean() <= 2 * np.abs(theirs - correct).mean()


@pytest.mark.parametrize("length", [200, pytest.param(600, marks=SLOW)])
@pytest.mark.slow
def test_blockwise_works_under_vmap_and_on_several_devices(length):
    """Rows are sharded over devices, and gradients of shared arrays are summed."""
    encoding, sides, (q, k, v, cotangent) = setting("t5", length)

    def loss(q, k, v, encoding, cotangent):
        out, _ = blockwise(q, k, v, encoding, **sides)
        return jnp.sum(out * cotangent), out

    gradient = jax.grad(loss, (0, 1, 2, 3), has_aux=True)
    expected = jax.jit(gradient)(q, k, v, encoding, cotangent)
    mapped = jax.vmap(lambda *row: loss(*(x[None] for x in row[:3]), encoding, row[3][None])[1][0])
    np.testing.assert_allclose(jax.jit(mapped)(q, k, v, cotangent), expected[1], atol=1e-6)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:B]), ("data",))
    rows, whole = jax.sharding.PartitionSpec("data"), jax.sharding.PartitionSpec()
    shared = jax.shard_map(
        gradient,
        mesh=mesh,
        in_specs=(rows, rows, rows, whole, rows),
        out_specs=((rows, rows, rows, whole), rows),
    )
    sharded = jax.jit(shared)(q, k, v, encoding, cotangent)
    for ours, theirs in zip(jax.tree.leaves(sharded), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6 + 1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize(
    ("name", "length"),
    [
        pytest.param(name, length, marks=[] if length == quick else SLOW)
        for name, quick in (("alibi", 600), ("fire", 256), ("fox", 600))
        for length in (256, 600)
    ],
)
def test_no_gradient_of_a_fixed_bias_is_computed(name, length):
    """Count the program's operations, unrolled and in a loop: only a differentiated bias sums."""

    def operations(name, differentiated=False):
        encoding, sides, (q, k, v, _) = setting(name, length)
        leaves, tree = jax.tree.flatten((encoding, sides["q_tokens"].features))

        def loss(q, k, v, some):
            rebuilt, features = jax.tree.unflatten(tree, some if differentiated else leaves)
            given = {s: sides[s].replace(features=features) for s in ("q_tokens", "k_tokens")}
            return jnp.sum(attention(q, k, v, rebuilt, **sides | given) ** 2)

        jaxpr = jax.make_jaxpr(jax.grad(loss, (0, 1, 2, 3)))(q, k, v, leaves)
        return [e.primitive.name for e in equations(jaxpr.jaxpr)]

    def sums_but_of_loops(operations):
        """Count sums, less the one of each forward loop: without a bias there is a loop more."""
        return operations.count("reduce_sum") - operations.count("scan") // 2

    without, fixed, moved = operations("nope"), operations(name), operations(name, True)
    for each in ("reduce_sum", "dot_general"):
        assert fixed.count(each) <= moved.count(each)
    assert sums_but_of_loops(fixed) == sums_but_of_loops(without) < sums_but_of_loops(moved)


@pytest.mark.parametrize("length", [1024, pytest.param(8192, marks=SLOW)])
def test_memory_is_linear_in_length(length):
    """Twice the length takes twice the temporary bytes of the compiled gradient."""

    def temporary(length, how):
        encoding, sides, (q, k, v, _) = setting("t5", length)

        def loss(q, k, v, encoding):
            return jnp.sum(how(q, k, v, encoding, **sides)[0] ** 2)

        compiled = jax.jit(jax.grad(loss, (0, 1, 2, 3))).lower(q, k, v, encoding).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(2 * length, blockwise) <= 2.1 * temporary(length, blockwise)
    assert temporary(length, plain) > 5 * temporary(length, blockwise)
