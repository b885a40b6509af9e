"""A model in Llama's layout: what is read back is the same model."""

import dataclasses
import json

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
    expected = forward(model, tokens, encoding)
    actual = forward(read.model, tokens, read.encoding)
    np.testing.assert_allclose(actual, expected, atol=2e-5)
    if extension != "none":
        assert np.abs(forward(model, tokens, rope) - expected).max() > 1e-3
    assert read.facts["train_length"] == L * (1 if extension in ("none", "abf:base=500") else 4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"]
    tokens = read.tokenizer.encode("caf\u00e9\n")
    assert tokens.tolist() == list("caf\u00e9\n".encode())


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
    assert (facts["theta"], facts["rope_type"]) == (base, "longrope" if scale > 1 else "default")
    for changed, trained in ((2e6, None), (2e6, 3 * length), (123_456.0, None), (1234.567, None)):
        encoding = posenc_jax.extend("abf", rope, 1.0, base=changed)
        out = tmp_path / f"{changed} {trained}"
        pretrained.save(model, encoding, tokenizer.Bytes(), out, train_length=trained)
        facts = pretrained.load(out).facts
        assert (facts["theta"], facts["train_length"]) == (changed, trained or length)


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
        (make_model(**LLAMA, qk_norm=True), rope, "model.qk_norm = True"),
        (make_model(**LLAMA), posenc_jax.build("alibi", DIMS), "encoding 'alibi', only 'rope'"),
        (make_model(**LLAMA), posenc_jax.extend("logn", rope, 1.0), "logn"),
        (make_model(**LLAMA), posenc_jax.extend("topk", rope, 1.0, k=8), "top-k"),
        (make_model(**LLAMA), posenc_jax.extend(BY_QUERY, rope, 4.0), "temperatures"),
        (make_model(**LLAMA), posenc_jax.extend("rerope", rope, 1.0), "only 'rope'"),
        (make_model(**LLAMA), posenc_jax.build("rope", DIMS, keep=0.5), "pairs that do not turn"),
        (make_model(**LLAMA), posenc_jax.build("rope", DIMS, fraction=0.5), "part of a head"),
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
