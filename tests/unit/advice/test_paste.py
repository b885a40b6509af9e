"""What engines are given for a method, and what they make of it."""

import json
import shlex

import pytest
from llamas import LLAMA, write

from posenc_jax.advice import paste
from posenc_jax.pretrained import saving
from posenc_jax.pretrained.adopt import adopt
from posenc_jax.runs.subject import load_subject, run_config

LONG = LLAMA | {"max_position_embeddings": 64}


def in_config(text):
    return json.loads(text[text.index("{") :])


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pasted")
    write(folder / "model", config=LONG)
    adopt(folder / "model", folder / "run")
    subject = load_subject(folder / "run")
    layouts = saving.layouts_of(saving.lineage_of(folder / "run"))
    return lambda method: paste.blocks(subject, layouts, "none", method, 128, "owner/model")


def test_each_engine_is_given_its_own_spelling(blocks):
    found = blocks("yarn:3.5")
    assert set(found) == set(paste.NAMES) and not any(block.fault for block in found.values())
    words = shlex.split(found["vllm"].text)
    assert words[:5] == ["vllm", "serve", "owner/model", "--max-model-len", "128"]
    given = json.loads(words[-1])
    assert set(given) <= paste.ROPE and "rope_scaling" not in given
    rope = given["rope_parameters"]
    assert (rope["rope_type"], rope["factor"], rope["rope_theta"]) == ("yarn", 3.5, 5000.0)
    assert rope["original_max_position_embeddings"] == 64
    assert "--context-length 128" in found["sglang"].text
    newer, older = map(in_config, found["transformers"].text.split("transformers 4:"))
    assert newer == {"rope_scaling": None} | given and older["rope_scaling"] == rope
    assert in_config(found["mlx-lm"].text) == older
    assert found["llama.cpp"].text == (
        "llama-server -m MODEL.gguf -c 128 --rope-scaling yarn --rope-scale 3.5 "
        "--yarn-orig-ctx 64 --yarn-beta-fast 32 --yarn-beta-slow 1\n"
    )


def test_what_an_engine_misreads_is_said(blocks):
    found = blocks("yarn:4:attention_factor=1")
    wrong = {engine for engine, block in found.items() if block.fault}
    # llama.cpp computes a factor of its own, whatever --yarn-attn-factor says.
    assert wrong == {"sglang", "mlx-lm", "llama.cpp"} and "ignored" in found["sglang"].fault
    assert blocks("yarn:4:truncate=False")["llama.cpp"].fault
    assert "it refuses rows beyond the factor times L, 96" in blocks("yarn:1.5")["vllm"].fault


@pytest.mark.parametrize("factor", [2.0, 4.1, 5.3, 7.7])
def test_ntk_is_a_base_for_every_engine(blocks, factor):
    found = blocks(f"ntk:{factor}")
    assert not any(block.fault for block in found.values())
    base = 5000.0 * factor ** (6 / 4)
    given = in_config(found["mlx-lm"].text)
    assert given["rope_theta"] == pytest.approx(base, 1e-6) and given["rope_scaling"] is None
    assert float(found["llama.cpp"].text.split()[-1]) == given["rope_theta"]


def test_what_no_rope_type_states_is_for_no_engine(blocks):
    for method in ("self_extend:group=4", "dca"):
        assert all(
            b.fault == "neither config.json nor flags state it" for b in blocks(method).values()
        )


def test_a_file_with_rope_scaling_of_its_own_keeps_it_in_llama_cpp(tmp_path):
    scaled = {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 64}
    scaled |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = LONG | {"max_position_embeddings": 256, "rope_scaling": scaled}
    write(tmp_path / "model", config=config)
    adopt(tmp_path / "model", tmp_path / "run")
    subject, lineage = load_subject(tmp_path / "run"), saving.lineage_of(tmp_path / "run")
    layouts = saving.layouts_of(lineage)
    own = saving.own_extension(run_config(tmp_path / "run"))
    none, yarn = (
        paste.blocks(subject, layouts, own, method, 512, "m.gguf") for method in ("none", "yarn:8")
    )
    assert none["llama.cpp"].text == "llama-server -m m.gguf -c 512\n"
    assert "stays on" in yarn["llama.cpp"].fault
    given = in_config(none["mlx-lm"].text)
    assert given["rope_scaling"].items() >= scaled.items()
    assert given["max_position_embeddings"] == 512
    assert in_config(yarn["transformers"].text.split("transformers 4:")[0])["rope_scaling"] is None
