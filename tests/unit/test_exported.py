"""A model in a published layout: what is read back is the same model."""

import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, L

import posenc_jax
from posenc_jax import pretrained
from posenc_jax.data import tokenizer
from posenc_jax.runtime.errors import ConfigError

LLAMA = {"activation": "swiglu", "tied": False, "kv_heads": 2, "vocab": 256}
SLOW = pytest.mark.slow
BY_QUERY = "yarn:attention_factor=query"


@pytest.mark.parametrize(
    "extension",
    [
        "yarn",
        "longrope:lambdas=1/2/3/4:short=1/1/2/3",
        *(pytest.param(n, marks=SLOW) for n in ("none", "pi", "ntk", "llama3", "abf:base=500")),
    ],
)
def test_a_saved_llama_is_read_back_with_its_extension(extension, make_model, forward, tmp_path):
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 256, (1, 4 * L)))
    model = make_model(**LLAMA)
    rope = posenc_jax.build("rope", DIMS, base=1000.0)
    encoding = posenc_jax.extend(extension, rope, 4.0)
    pretrained.save(model, encoding, tokenizer.Bytes(), tmp_path / "out")
    read = pretrained.load(tmp_path / "out")
    for row in (tokens[:, :L], tokens):
        expected = forward(model, row, encoding)
        actual = forward(read.model, row, read.encoding)
        np.testing.assert_allclose(actual, expected, atol=2e-5)
    if extension != "none":
        assert np.abs(forward(model, tokens, rope) - expected).max() > 1e-3
    assert read.facts["train_length"] == L * (1 if extension in ("none", "abf:base=500") else 4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"]
    tokens = read.tokenizer.encode("caf\u00e9\n")
    assert tokens.tolist() == list("caf\u00e9\n".encode())


@pytest.mark.parametrize("extension", ["none", "yarn"])
def test_frequencies_trained_on_jumped_rows_are_saved_as_longrope(extension, make_model, tmp_path):
    options = {"base": 1000.0, "frequencies": "trained", "max_position": 4 * L, "inner_length": L}
    key = jax.random.key(0)
    drawn = posenc_jax.build("randomized", DIMS, key, positions="chunks", **options)
    shift = 0.2 * jax.random.normal(key, drawn.inner.alpha.shape)
    drawn = drawn.replace(inner=drawn.inner.replace(alpha=shift))
    encoding = posenc_jax.extend(extension, drawn, 4.0)
    model = make_model(**LLAMA)
    pretrained.save(model, encoding, tokenizer.Bytes(), tmp_path / "out", train_length=4 * L)
    read = pretrained.load(tmp_path / "out")
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 256, (1, 2 * L)))
    expected = model(tokens, encoding)
    np.testing.assert_allclose(read.model(tokens, read.encoding), expected, atol=2e-5)
    assert np.abs(expected - model(tokens, drawn.inner.replace(alpha=0 * shift))).max() > 1e-3


@pytest.mark.parametrize(
    ("length", "base", "scale", "size"),
    [
        (2048, 1e3, 1, 8),
        (2048, 1e4, 1, 128),
        (2048, 5e5, 1, 128),
        (8192, 1e5, 1, 64),  # SmolLM2
        (4096, 1e6, 1, 128),
        (2048, 10000.1, 1, 96),
        (8192, 1e5, 2, 8),
        (8192, 1e5, 8, 8),
    ],
)
def test_a_saved_base_and_length_are_read_back_exactly(
    length, base, scale, size, make_model, tmp_path
):
    """Frequencies of float32 made 2049 of 2048, and LongRoPE of plain RoPE."""
    dims = dataclasses.replace(DIMS, train_length=length, head_dim=size)
    rope = posenc_jax.build("rope", dims, base=base)
    encoding = posenc_jax.extend("yarn", rope, float(scale)) if scale > 1 else rope
    model = make_model(**LLAMA, head_dim=size)
    pretrained.save(model, encoding, tokenizer.Bytes(), tmp_path / "out")
    facts = pretrained.load(tmp_path / "out").facts
    assert (facts["L"], facts["train_length"]) == (length, scale * length)
    assert (facts["theta"], facts["rope_type"]) == (base, "yarn" if scale > 1 else "default")
    for changed, trained in ((2e6, None), (2e6, 3 * length), (123_456.0, None), (1234.567, None)):
        encoding = posenc_jax.extend("abf", rope, 1.0, base=changed)
        out = tmp_path / f"{changed} {trained}"
        pretrained.save(model, encoding, tokenizer.Bytes(), out, train_length=trained)
        facts = pretrained.load(out).facts
        assert (facts["theta"], facts["train_length"]) == (changed, trained or length)


GRID = [
    *itertools.product(
        (12, 32, 64, 128), (64, 128, 1024, 2048, 8192), (1e4, 5e5), ("pi", "yarn"), (2, 3, 4, 8, 16)
    )
]


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:YaRN's ramp collapses")
@pytest.mark.parametrize(("size", "length", "base", "name", "scale"), GRID)
def test_a_saved_extension_is_read_back_by_its_own_rope_type(
    size, length, base, name, scale, make_model, tmp_path
):
    rope = posenc_jax.build(
        "rope", dataclasses.replace(DIMS, train_length=length, head_dim=size), base=base
    )
    encoding = posenc_jax.extend(name, rope, float(scale))
    pretrained.save(
        make_model(**LLAMA, head_dim=size), encoding, tokenizer.Bytes(), tmp_path / "out"
    )
    read = pretrained.load(tmp_path / "out")
    kind = {"pi": "linear", "yarn": "yarn"}[name]
    facts = {
        name: read.facts[name] for name in ("rope_type", "factor", "theta", "L", "train_length")
    }
    assert list(facts.values()) == [kind, scale, base, length, scale * length]
    np.testing.assert_allclose(read.encoding.inv_freq, encoding.inv_freq, rtol=2e-7)
    np.testing.assert_allclose(read.encoding.gain, encoding.gain, rtol=2e-7)


def test_a_file_whose_factor_is_rounded_to_float32_is_read(make_model, tmp_path):
    rope = posenc_jax.build("rope", DIMS, base=1e4)
    pretrained.save(make_model(**LLAMA), rope, tokenizer.Bytes(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    pairs = DIMS.head_dim // 2
    longrope = {"rope_type": "longrope", "factor": 7.9999996, "attention_factor": 1.0}
    longrope |= dict.fromkeys(("short_factor", "long_factor"), [7.9999996] * pairs)
    config |= {"rope_scaling": longrope | {"original_max_position_embeddings": L}}
    config |= {"max_position_embeddings": 8 * L, "rope_parameters": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert pretrained.load(tmp_path).facts["train_length"] == 8 * L


def test_every_file_has_the_usual_mode(make_model, tmp_path):
    rope = posenc_jax.build("rope", DIMS)
    pretrained.save(make_model(**LLAMA), rope, tokenizer.Bytes(), tmp_path / "out")
    (tmp_path / "usual").touch()
    for path in (tmp_path / "out").iterdir():
        assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode, path


def test_what_has_no_form_is_refused_with_the_reason(make_model, tmp_path):
    rope, encoder = posenc_jax.build("rope", DIMS), tokenizer.Bytes()
    for model, encoding, reason in (
        (make_model(), rope, "model.activation = 'gelu', only 'swiglu'"),
        (make_model(**LLAMA, embed_norm=True), rope, "model.embed_norm = True, only False"),
        (make_model(**LLAMA), posenc_jax.build("alibi", DIMS), "encoding 'alibi', only 'rope'"),
        (make_model(**LLAMA), posenc_jax.extend("logn", rope, 1.0), "logn"),
        (make_model(**LLAMA), posenc_jax.extend("topk", rope, 1.0, k=8), "top-k"),
        (make_model(**LLAMA), posenc_jax.extend(BY_QUERY, rope, 4.0), "temperatures"),
        (make_model(**LLAMA), posenc_jax.extend("rerope", rope, 1.0), "only 'rope'"),
        (make_model(**LLAMA), posenc_jax.build("rope", DIMS, keep=0.5), "inv_freq of encoding"),
        (
            make_model(**LLAMA),
            posenc_jax.build("rope", DIMS, base=[1e3, 1e4, 1e5, 1e6]),
            "per head",
        ),
    ):
        with pytest.raises(ConfigError, match=reason):
            pretrained.save(model, encoding, encoder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        pretrained.save(make_model(**LLAMA), rope, encoder, tmp_path)


@pytest.mark.parametrize("prefix", [None, 10])
def test_the_first_token_of_rows_is_saved(prefix, make_model, tmp_path):
    rope = posenc_jax.build("rope", DIMS)
    pretrained.save(make_model(**LLAMA), rope, tokenizer.Bytes(), tmp_path / "out", prefix=prefix)
    read = pretrained.load(tmp_path / "out")
    assert read.facts["prefix"] == prefix
    first = [] if prefix is None else [prefix]  # as other programs put it
    assert read.tokenizer.tokenizer.encode("ab").ids == [*first, *b"ab"]


@pytest.mark.parametrize("extension", ["interpolate", "clamp"])
def test_a_resampled_table_is_saved_with_its_length(extension, make_model, forward, tmp_path):
    model = make_model(norm="layer", biases="all", vocab=256)
    learned = posenc_jax.build("learned", DIMS, jax.random.key(0))
    encoding = posenc_jax.extend(extension, learned, 4.0)
    pretrained.save(model, encoding, tokenizer.Bytes(), tmp_path / "out")
    read, row = pretrained.load(tmp_path / "out"), jnp.arange(4 * L)[None] % 256
    expected = forward(model, row, encoding)
    np.testing.assert_allclose(forward(read.model, row, read.encoding), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({"embed_factor": 1.5}, "attention_multiplier", DIMS.head_dim**-0.5),
        (
            {"norm_place": "both", "activation": "geglu", "embed_scale": True, "tied": True}
            | {"score_cap": 2.0, "score_size": 20.0},
            "query_pre_attn_scalar",
            20,
        ),
    ],
)
def test_the_size_of_scores_is_saved_as_its_family_has_it(
    options, key, value, make_model, tmp_path
):
    rope = posenc_jax.build("rope", DIMS)
    pretrained.save(make_model(**LLAMA | options), rope, tokenizer.Bytes(), tmp_path / "out")
    found = json.loads((tmp_path / "out" / "config.json").read_text())[key]
    assert found == value and type(found) is type(value)


def test_a_gemma_without_windows_states_no_empty_window(make_model, tmp_path):
    options = {"norm_place": "both", "activation": "geglu", "embed_scale": True, "qk_norm": True}
    rope = posenc_jax.build("rope", DIMS)
    pretrained.save(make_model(**LLAMA | options), rope, tokenizer.Bytes(), tmp_path / "out")
    assert "sliding_window" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert pretrained.load(tmp_path / "out").encoding.name == "rope"
