"""What a model, its cache and its generation refuse, and the words of the answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import build
from sizes import DIMS, VOCAB, L

import models
import posenc_jax
from posenc_jax.encoding import Dims

ROPE, LEARNED = build("rope"), build("learned")
LATENT = Dims(DIMS.heads, DIMS.head_dim, DIMS.width, L, rotary_dim=4)
SIX = Dims(DIMS.heads, DIMS.head_dim, DIMS.width, L, layers=6)
OPTIONS = [
    ({"widht": 8}, r"unknown model option 'widht'; did you mean 'width'\?"),
    ({"layers": 0}, "layers must be a whole number of at least 1; got 0"),
    ({"heads": 0}, "heads must be a whole number of at least 1; got 0"),
    ({"width": 30, "heads": 4}, "width must be a multiple of heads"),
    ({"heads": 4, "kv_heads": 3}, "heads must be a multiple of kv_heads"),
    ({"norm": "batch"}, "norm must be one of 'rms', 'layer', 'layer_without_bias'; got 'batch'"),
    ({"norm_place": "mid"}, "norm_place must be one of"),
    ({"norm_place": "post", "parallel": True}, "parallel needs norm_place = 'pre'"),
    ({"shared_norm": True}, "shared_norm has no effect without parallel"),
    ({"score_cap": 0.0}, "score_cap must be"),
    ({"qk_norm_of": "all"}, "qk_norm_of = 'all' has no effect without qk_norm"),
    ({"activation": "relu"}, "activation must be one of"),
    ({"dtype": "float16"}, "dtype must be one of"),
    ({"tied": 1}, "tied must be True or False"),
    ({"latent_dim": 8}, "need each other; got 8 and None"),
    ({"rotary_dim": 8}, "need each other; got None and 8"),
    ({"latent_dim": 8, "rotary_dim": 34}, "rotary_dim must be at most K = 32; got 34"),
    ({"latent_dim": 8, "rotary_dim": 2, "kv_heads": 2}, "kv_heads and latent_dim are mutually"),
    ({"latent_dim": 8, "rotary_dim": 2, "qk_norm": True}, "qk_norm and latent_dim are mutually"),
]


@pytest.mark.parametrize(("fields", "message"), OPTIONS)
def test_wrong_options_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        models.Transformer(fields, jax.random.key(0))


def test_what_a_model_cannot_read_is_refused(make_model, make_tokens):
    model, tokens, hybrid = make_model(), make_tokens(L), build("hybrid", SIX)
    far, halves = 2**31 + np.arange(L), np.arange(L) >= 7
    restarting = np.arange(L) - 7 * halves
    for given, message in (
        *(
            ({"positions": positions}, "positions must be finite and at most 2")
            for positions in (far, far / 2, np.full(L, np.nan), -far[None])
        ),
        ({"positions": restarting}, "if they restart within a row, give segments"),
        ({"segments": np.float32(halves)[None]}, "segments must be integers or booleans; got flo"),
        ({"encoding": posenc_jax.stack([ROPE] * 3)}, "stacked over 3 layers, but the model has 2"),
        ({"encoding": hybrid}, "'hybrid' was built for 6 layers, but the model has 2"),
        ({"encoding": build("rope", LATENT)}, "'rotary_dim': 4}, but the model has .*: None}"),
    ):
        with pytest.raises(ValueError, match=message):
            model(**{"tokens": tokens, "encoding": ROPE} | given)
    capped = make_model(score_cap=2.0)
    with pytest.raises(ValueError, match="'cope' has its own attention, .* model.score_cap = None"):
        capped(tokens, build("cope"))
    latent = make_model(layers=1, latent_dim=12, rotary_dim=4, value_dim=6)
    with pytest.raises(ValueError, match="'rotary_dim': None}, but the model has .*: 4}"):
        latent(tokens, ROPE)


def test_tokens_outside_the_vocabulary_are_refused(make_model, make_tokens, forward):
    model, tokens = make_model(), np.array(make_tokens(L), np.int64)
    for wrong in (-1, VOCAB, 2**32, -(2**32)):  # in 64 bits, of which jax keeps 32
        bad = tokens.copy()
        bad[0, 3] = wrong
        message = f"must be at least 0 and below {VOCAB}, the vocabulary size; got {wrong}"
        for name, call in (
            ("tokens", lambda bad: model(bad, ROPE)),
            ("tokens", lambda bad: model.losses(bad, tokens, ROPE)),
            ("targets", lambda bad: model.losses(tokens, bad, ROPE)),
        ):
            with pytest.raises(ValueError, match=f"{name} {message}"):
                call(bad)
        with jax.transfer_guard_device_to_host("disallow_explicit"):
            forward(model, jnp.asarray(bad), ROPE)  # under jit their values are unknown


def test_encodings_that_do_not_stack_are_refused():
    sinks = build("rope", SIX, sink=True)
    for layers, message in (
        ([ROPE, build("alibi")], "layers must differ in array values alone"),
        ([], "at least one encoding, one per layer"),
        ([sinks, sinks], "none that is already stacked"),
    ):
        with pytest.raises(ValueError, match=message):
            posenc_jax.stack(layers)


def test_a_compiled_step_beyond_the_cache_gives_nan(make_model, make_tokens):
    """There the length is unknown; rows that are not full go on."""
    model, tokens = make_model(), make_tokens(1, batch=2)
    cache = models.init_cache(model.config, ROPE, 2, 8).replace(empty=False)
    step = jax.jit(lambda cache: model.step(tokens, ROPE, cache)[0])
    for lengths, full in ((7, [False, False]), (8, [True, True]), ([8, 7], [True, False])):
        logits = step(cache.replace(length=jnp.asarray(lengths)))
        np.testing.assert_array_equal(np.isnan(logits).all(axis=(1, 2)), full)
        np.testing.assert_array_equal(np.isnan(logits).any(axis=(1, 2)), full)
    padded = jax.jit(lambda cache: model.step(make_tokens(3), ROPE, cache, jnp.array(1))[0])
    cache = models.init_cache(model.config, ROPE, 1, 8).replace(empty=False)
    for length, full in ((5, False), (6, True)):  # padding has places too
        assert np.isnan(padded(cache.replace(length=jnp.asarray(length)))).all() == full


def test_what_has_no_cache_is_refused(make_model, make_tokens):
    model = make_model(layers=1)
    evenly = build("randomized", evenly=True)
    moved = [posenc_jax.extend(name, ROPE, 1.0) for name in ("self_extend:group=2", "dca")]
    for encoding, size, options, message in (
        (evenly, 20, {}, "depend on the final length"),
        (LEARNED, 17, {}, "reaches 16 positions"),
        *((each, 20, {"rotated": True}, "cannot be rotated once") for each in moved),
    ):
        with pytest.raises(ValueError, match=message):
            models.init_cache(model.config, encoding, 1, size, **options)
    cache, ring = (models.init_cache(model.config, e, 1, 20) for e in (ROPE, ROPE.windowed(4)))
    for held, read, tokens, message in (
        (cache, 15, make_tokens(6), "holds 20 tokens; 15 were read and 6 follow"),
        (cache, 15, make_tokens(2, batch=2), "made for 1 rows"),
        (ring, 3, make_tokens(1), "make it for this encoding"),
    ):
        with pytest.raises(ValueError, match=message):
            model.step(tokens, ROPE, held.replace(length=jnp.asarray(read), empty=False))


def test_what_cannot_be_generated_is_refused(make_model, make_tokens):
    model, prompt = make_model(), make_tokens(5)
    models.generate(model, LEARNED, prompt, tokens=L - 4)
    for options, message in (
        ({"encoding": LEARNED, "tokens": L - 3}, "reaches 16 positions, fewer than 17"),
        ({"encoding": [ROPE] * 3}, "one encoding per step: 4"),
        ({"temperature": 1.0}, "give key="),
        ({"top_k": 3}, "no effect at temperature 0"),
        ({"stop": VOCAB}, "below 19"),
        ({"lengths": [6]}, "1 numbers from 1 to 5"),
        ({"lengths": [1.5]}, "1 numbers from 1 to 5"),
        *(({"prompt": [[each]]}, "whole numbers from 0 to 18") for each in (VOCAB, -1, 1.5)),
    ):
        given = {"encoding": ROPE, "prompt": prompt, "tokens": 4} | options
        with pytest.raises(ValueError, match=message):
            models.generate(model, **given)
    with pytest.raises(ValueError, match="each must be"):
        list(models.stream(model, ROPE, prompt, tokens=4, each=0))
