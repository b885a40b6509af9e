"""A model with a cache computes what full passes compute, by pieces of any size and by tokens."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import KEY, build
from configured import problems_of
from running import ROOT, committed
from sizes import DIMS, VOCAB, L, with_options

import models
import posenc_jax
from configs import mla
from models import generation
from posenc_jax import extensions, schemes
from posenc_jax.config import building, load
from posenc_jax.layers import holds_state
from posenc_jax.runtime.trees import by_path
from posenc_jax.testing import DECODED as SIZE
from posenc_jax.testing import equal_by_pieces, read_by_pieces, read_next


def extended():
    """Every extension around every encoding that it fits, and windows that wrap around a ring."""
    for name in schemes.names():
        encoding = build(name)
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


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "layer", "parallel": True, "activation": "gelu_erf", "biases": "all"}
        | {"qk_norm": True, "embed_norm": True, "norm_eps": 1e-3, "bos": True},
        {"norm_place": "both", "activation": "geglu", "embed_scale": True, "bos": True},
        {"norm_place": "output", "qk_norm": True, "qk_norm_of": "all"},
        {"score_size": 3, "score_cap": 1.0, "logit_factor": 0.5, "logit_cap": 3.0},
    ],
    ids=["parallel", "both", "output", "caps"],
)
def test_options_of_models_by_pieces_equal_the_full_pass(forward, make_model, make_tokens, options):
    model = make_model(layers=1, **options)
    model = jax.tree.map(
        lambda leaf: leaf + np.float32(0.1 * np.cos(np.arange(leaf.size))).reshape(leaf.shape),
        model,
    )
    equal_by_pieces(model, build("rope"), make_tokens(SIZE, batch=2))


@pytest.mark.parametrize(("name", "extension"), list(extended()))
def test_extensions_by_pieces_equal_the_full_pass(name, extension, drawn, make_model, make_tokens):
    encoding = build(name)
    if name != "selective_rope":  # drawn, its angles magnify rounding; as built, none is neutral
        encoding = drawn(encoding)
    narrow = "window" in extension or "streaming" in extension
    model = make_model(layers=2 if narrow else encoding.period, kv_heads=2)
    encoding = posenc_jax.extend(extension, encoding, 2.5)
    equal_by_pieces(model, encoding, make_tokens(min(encoding.reach or SIZE, SIZE), batch=2))


@pytest.mark.sampled
def test_rows_of_unequal_lengths_equal_their_own_passes(forward, encoding, make_model, make_tokens):
    """Padding on the right is neither seen nor held, in rings and after them too."""
    model, counts = make_model(layers=1), np.array([3, 9, 14])
    tokens = make_tokens(min(encoding.reach or SIZE, SIZE), batch=3)
    encoding = encoding.windowed(6)
    cache = models.init_cache(model.config, encoding, 3, tokens.shape[1])
    _, cache = read_next(model, tokens[:, :14], encoding, cache, counts)
    for moved in range(2):
        places = counts + moved
        new = tokens[np.arange(3), places][:, None]
        logits, cache = read_next(model, new, encoding, cache)
        expected = forward(model, tokens, encoding)[np.arange(3), places]
        np.testing.assert_allclose(logits[:, 0], expected, rtol=2e-5, atol=2e-5)


def test_a_window_holds_no_more_keys_than_it_sees(make_model):
    config = make_model().config
    rope = build("rope")
    hybrid = build("hybrid", pattern="local,global", window=5)
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
    model, rope = make_model(layers=1), build("rope")
    tokens = make_tokens(SIZE)
    before, yarn = (posenc_jax.extend(name, rope, scale) for scale in (1.0, 4.0))
    cache = models.init_cache(model.config, rope, 1, SIZE, rotated=rotated)
    _, cache = read_next(model, tokens[:, :-1], before, cache)
    logits, _ = read_next(model, tokens[:, -1:], yarn, cache)
    np.testing.assert_allclose(
        logits[:, 0], forward(model, tokens, yarn)[:, -1], rtol=2e-5, atol=2e-5
    )


def test_stale_keys_keep_the_angle_of_their_step(forward, make_model, make_tokens):
    """Against dense attention in float64, whose keys have the frequencies of their own steps."""
    model, rope = make_model(layers=1), build("rope")
    tokens, yarn = make_tokens(SIZE), posenc_jax.extend("yarn", rope, 4.0)
    cache = models.init_cache(model.config, rope, 1, SIZE, rotated=True)
    _, cache = read_next(model, tokens[:, :-1], rope, cache)
    logits, _ = read_next(model, tokens[:, -1:], yarn, cache)

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
    rope = build("rope")
    cache = models.init_cache(model.config, rope, 1, 2 * L, rotated=rotated)
    steps = []
    for place in range(2 * L):
        encoding = posenc_jax.extend(method, rope, (place + 1) / L)
        logits, cache = read_next(model, tokens[:, place : place + 1], encoding, cache)
        steps.append(logits)
    change = jnp.abs(jnp.concatenate(steps, axis=1) - forward(model, tokens, rope)).max(axis=(0, 2))
    assert change[:L].max() < 2e-5 and change[L:].min() > 1e-4


TWO_LISTS = posenc_jax.extend("longrope:4:lambdas=1/2/4/8:short=1/1/2/3", build("rope"), 1.0)


def test_a_cache_reads_rows_of_its_size(make_model, make_tokens):
    model = make_model(layers=1)
    for size in (L, L + 1):
        equal_by_pieces(model, TWO_LISTS, make_tokens(size, batch=2), cuts=(0, 7, 8, size))


def test_bfloat16_stays_within_its_rounding(forward, make_model, make_tokens):
    rope, tokens = build("rope"), make_tokens(SIZE, batch=2)
    model = make_model(layers=1, dtype="bfloat16")
    logits, cache = read_by_pieces(model, rope, tokens)
    assert cache.layers[0].k.dtype == jnp.bfloat16
    exact = forward(make_model(layers=1), tokens, rope)
    rounding = jnp.abs(forward(model, tokens, rope) - exact).max()
    assert jnp.abs(logits - exact).max() < 2 * rounding


@pytest.mark.slow
def test_losses_of_pieces_are_those_of_the_row(make_model, make_tokens):
    model, rope, row = make_model(), build("rope"), make_tokens(SIZE)
    cache = models.init_cache(model.config, rope, 1, SIZE)
    nats = []
    for first, last in ((0, 20), (20, SIZE - 1)):
        tokens, targets = row[:, first:last], row[:, first + 1 : last + 1]
        part, _, cache = model.losses_step(tokens, targets, rope, cache)
        nats.append(part)
    expected, _ = model.losses(row[:, :-1], row[:, 1:], rope)
    np.testing.assert_allclose(jnp.concatenate(nats, 1), expected, rtol=1e-5, atol=1e-5)


# Attention to a latent (MLA)


LATENT = {"latent_dim": 12, "rotary_dim": 4, "value_dim": 6}
LATENT_DIMS = dataclasses.replace(DIMS, rotary_dim=4)
# The second piece of 17 expands the held keys; single tokens attend to the latents.
LATENT_CUTS = (0, 17, 34, 35, 36)
LATENT_CASES = [("rope", "yarn:2+window:size=15")]
LATENT_CASES += [
    pytest.param(name, extension, marks=pytest.mark.slow)
    for name, extensions_of in {
        "rope": "yarn:2 dca:2 self_extend:2 streaming:first=2:window=9 longrope:2:lambdas=1.5/1.5",
        "alibi": "window:size=1",
        "ssmax": "yarn:2",
        "learned": "interpolate:3",
        **dict.fromkeys(("xpos", "t5", "fox", "nope"), "none"),
    }.items()
    for extension in extensions_of.split()
]


@pytest.fixture
def latent_model(make_model):
    return make_model(layers=1, **LATENT)


@pytest.mark.parametrize(("name", "extension"), LATENT_CASES)
def test_a_latent_by_pieces_equals_the_full_pass(
    name, extension, latent_model, make_tokens, forward
):
    encoding = posenc_jax.extend(extension, build(name, LATENT_DIMS), 1.0)
    equal_by_pieces(latent_model, encoding, make_tokens(36, batch=2), cuts=LATENT_CUTS)


def test_the_latents_are_read_with_their_low_rank_part(make_model, make_tokens, forward):
    model = make_model(layers=1, lora=2, **LATENT)
    for linear in (model.blocks.attention.up, model.blocks.attention.v):
        linear.lora_up[...] = jnp.full_like(linear.lora_up[...], 0.1)
    encoding = build("rope", LATENT_DIMS)
    equal_by_pieces(model, encoding, make_tokens(36, batch=2), cuts=LATENT_CUTS)


def test_a_gradient_reaches_every_parameter_of_a_latent(latent_model, make_tokens):
    tokens, encoding = make_tokens(L, batch=2), build("rope", LATENT_DIMS)

    def loss(model):
        return model.losses(tokens[:, :-1], tokens[:, 1:], encoding)[0].mean()

    gradient = by_path(jax.jit(jax.grad(loss))(latent_model))
    assert {"blocks.attention.up.kernel", "blocks.attention.latent_norm.scale"} <= {*gradient}
    assert all(np.abs(leaf).max() > 1e-6 for leaf in gradient.values())


def test_the_cache_holds_the_latent_and_the_shared_entries_alone(latent_model):
    cache = models.init_cache(latent_model.config, build("rope", LATENT_DIMS), 3, 100)
    entries = sum(leaf.size for leaf in jax.tree.leaves(cache.layers))
    assert entries == 3 * 100 * (LATENT["latent_dim"] + LATENT["rotary_dim"])


def test_the_recipe_rotates_the_shared_entries_alone():
    config = mla.get_config()
    encoding = building.plain(load(config), KEY)
    assert encoding.inv_freq.shape == (config.model.rotary_dim // 2,)
    config.model.rotary_dim = 15
    assert "even number from 2 to rotary_dim = 15" in problems_of(config)[0]


# The table of docs/decoding.md


CONFIG = models.Config(width=DIMS.width, heads=DIMS.heads, layers=4)


def row(name, encoding, needs_length=False):
    size = min(40, encoding.reach or 40)
    try:
        models.init_cache(CONFIG, encoding, 1, size)
        cache = "needs the final length" if needs_length else "exact"
    except ValueError:
        return f"| {name} | no: its positions need the final length |  |  |"
    layers = [encoding.layer(index) for index in range(CONFIG.layers)]
    seen = [layer.visible_keys() for layer in layers if not holds_state(layer)]
    kinds = {"all" if last is None else "W + n" if first else "W" for first, last in seen}
    kinds |= {"a state" for layer in layers if holds_state(layer)}
    once = "yes" if models.rotates_once(CONFIG, encoding) else ""
    return f"| {name} | {cache} | {once} | {' or '.join(sorted(kinds))} |"


def rows():
    for name in schemes.names():
        yield row(f"`{name}`", build(name))
    yield row("`randomized` with `evenly`", build("randomized", evenly=True))
    for name, record in extensions.records().items():
        scheme = "rope" if record.fits(build("rope")) else "learned"
        extended = posenc_jax.extend(with_options(name), build(scheme), 2.0)
        yield row(f"`{name}`", extended, record.scale == "read")


@pytest.mark.filterwarnings("ignore:YaRN's ramp collapses")
def test_the_page_has_a_true_row_for_every_exception():
    head = "| encoding or extension | cache | accepts `rotated=True` | held per layer |\n"
    _, *table = (ROOT / "docs" / "decoding.md").read_text().partition(head)[2].splitlines()
    names = committed(schemes.names(), "posenc_jax", "schemes")
    names += committed(extensions.records(), "posenc_jax", "extensions")
    static = re.compile("`(dynamic_|stepped_)?([^`]+)`")
    checked = [line for line in rows() if static.search(line)[2] in names]
    assert table == [line for line in checked if not line.endswith(" | exact | yes | all |")]


# Generated tokens


def by_full_passes(model, encoding, row, tokens):
    """Continue a row greedily; tokens after the last one are not seen, so rows keep one shape."""
    call = jax.jit(lambda row, encoding: model(row, encoding))
    length, row = len(row), np.pad(row, (0, tokens))
    for step in range(tokens):
        now = encoding[step] if isinstance(encoding, list) else encoding
        row[length + step] = call(row[None], now)[0, length + step - 1].argmax()
    return row[length:].tolist()


@pytest.fixture(scope="module")
def sharp(make_model):
    """A model whose likeliest token leads clearly, so that rounding changes no choice."""
    model = make_model()
    return jax.tree.map(lambda leaf: 2.0 * leaf, model)


@pytest.mark.sampled
def test_greedy_tokens_are_those_of_full_passes(encoding, drawn, sharp, make_tokens):
    encoding, prompt = drawn(encoding), make_tokens(10, batch=2)
    tokens = min(L + 5, (encoding.reach or 100) - 10)
    out = models.generate(sharp, encoding, prompt, tokens=tokens)
    expected = [by_full_passes(sharp, encoding, row, tokens) for row in prompt]
    assert out.tolist() == expected


def test_rows_of_unequal_lengths_continue_as_each_alone(sharp, make_tokens):
    rope, prompt, lengths = build("rope"), make_tokens(12, batch=3), [4, 12, 7]
    out = models.generate(sharp, rope, prompt, tokens=9, lengths=lengths)
    alone = [
        models.generate(sharp, rope, prompt[row : row + 1, :length], tokens=9)[0].tolist()
        for row, length in enumerate(lengths)
    ]
    assert out.tolist() == alone


def test_one_encoding_per_step_is_a_full_pass_at_each_length(make_model, make_tokens):
    """The semantics `prefix`: all keys are rotated by the base of the current length. A layer's
    input depends on earlier bases, so the model has one layer."""
    model = jax.tree.map(lambda leaf: 2.0 * leaf, make_model(layers=1))
    rope, prompt, tokens = build("rope"), make_tokens(L - 3), L
    scales = [(L - 3 + step) / L for step in range(tokens)]
    encodings = [posenc_jax.extend("dynamic_ntk", rope, max(1.0, scale)) for scale in scales]
    out = models.generate(model, encodings, prompt, tokens=tokens)
    assert out[0].tolist() == by_full_passes(model, encodings, prompt[0], tokens)
    stale = models.generate(model, encodings, prompt, tokens=tokens, rotated=True)
    assert stale.tolist() != out.tolist()


def test_two_lists_follow_the_whole_row_or_the_length_so_far(make_model, make_tokens):
    model = jax.tree.map(lambda leaf: 2.0 * leaf, make_model(layers=1))
    prompt, found = make_tokens(L - 3), []
    for tokens, encoding in ((4, TWO_LISTS), (9, TWO_LISTS), (9, [TWO_LISTS] * 9)):
        several = isinstance(encoding, list)
        read = [L - 3 + step if several else L - 4 + tokens for step in range(tokens)]
        out = models.generate(model, encoding, prompt, tokens=tokens)
        encodings = [TWO_LISTS.for_rows(length) for length in read]
        assert out[0].tolist() == by_full_passes(model, encodings, prompt[0], tokens)
        found.append(out[0].tolist())
    stale = models.generate(model, [TWO_LISTS] * 9, prompt, tokens=9, rotated=True)
    assert stale[0, :4].tolist() == found[2][:4] and stale[0].tolist() not in found


def test_streamed_tokens_are_the_generated_ones(sharp, make_tokens):
    rope, prompt = build("rope"), make_tokens(5)
    options = dict(tokens=11, temperature=0.9, key=jax.random.key(2))
    whole = models.generate(sharp, rope, prompt, **options)
    pieces = list(models.stream(sharp, rope, prompt, **options, each=4))
    assert [piece.shape[1] for piece in pieces] == [4, 4, 3]
    np.testing.assert_array_equal(jnp.concatenate(pieces, axis=1), whole)


def test_a_row_repeats_its_stop_token(sharp, make_tokens):
    rope, prompt = build("rope"), make_tokens(5, batch=2)
    free = np.asarray(models.generate(sharp, rope, prompt, tokens=12))
    stop = int(free[0, 3])
    out = np.asarray(models.generate(sharp, rope, prompt, tokens=12, stop=[stop, VOCAB - 1]))
    for row in range(2):
        ends = np.flatnonzero(np.isin(free[row], [stop, VOCAB - 1]))
        length = ends[0] if len(ends) else 12
        np.testing.assert_array_equal(out[row, : length + 1], free[row, : length + 1])
        assert set(out[row, length + 1 :].tolist()) <= {int(free[row, min(length, 11)])}


@pytest.mark.slow
def test_sampling_keeps_to_the_likeliest_tokens(make_model, make_tokens):
    model, rope, prompt = make_model(), build("rope"), make_tokens(6, batch=1)
    prompts = np.repeat(prompt, 400, axis=0)
    logits = np.asarray(model(prompt, rope)[0, -1], np.float64)
    order = np.argsort(-logits)

    def drawn(**options):
        key = jax.random.key(1)
        return np.asarray(models.generate(model, rope, prompts, tokens=1, key=key, **options))[:, 0]

    assert set(drawn(temperature=2.0, top_k=3)) == set(order[:3].tolist())
    chances = np.exp(logits / 2) / np.exp(logits / 2).sum()
    kept = int(np.searchsorted(np.cumsum(chances[order]), 0.3)) + 1
    assert set(drawn(temperature=2.0, top_p=0.3)) == set(order[:kept].tolist())
    share = np.bincount(drawn(temperature=2.0), minlength=VOCAB) / 400
    np.testing.assert_allclose(share, chances, atol=0.08)
    np.testing.assert_array_equal(drawn(temperature=1e-4), drawn(temperature=3.0, top_k=1))


def test_lengths_of_one_bucket_share_a_program(make_model, make_tokens):
    model, rope = make_model(), build("rope")
    generation._continue.clear_cache()
    for length, tokens in ((5, 7), (30, 20), (17, 31)):
        models.generate(model, rope, make_tokens(length), tokens=tokens)
    assert generation._continue._cache_size() == 1
