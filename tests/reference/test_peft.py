"""Adapters of PEFT on models of transformers: read here and written here, with equal logits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from theirs import MODELS, TOKENS, L, error, logits_of, make, saved

import posenc_jax
from posenc_jax.pretrained import peft
from posenc_jax.pretrained.adopt import adopt, write_run
from posenc_jax.runs.subject import load
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.runtime.trees import by_path

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

# Families and the maps that an adapter of them has; packed ones are those of q, k and v.
CASES = {
    "llama": ["q_proj", "v_proj", "down_proj"],
    "gemma3": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "phi3": ["qkv_proj", "gate_up_proj", "o_proj"],
    "gpt_neox": ["query_key_value", "dense"],
    "mpt": ["Wqkv", "up_proj"],
    "bloom": ["query_key_value", "dense_h_to_4h"],
    "gpt2": ["c_attn", "c_proj"],  # its table of positions is trained too, so it is not written
}


def adapted(model, maps, **options):
    """The model with an adapter of PEFT whose parts are far from their initial values."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    made = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=maps, **options))
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return made.eval()


def logits_here(run):
    model, encoding, *_ = posenc_jax.load_run(run)
    with jax.numpy_rank_promotion("allow"):
        return np.asarray(jax.jit(model.__call__)(jnp.asarray(TOKENS), encoding))


@pytest.mark.parametrize("case", CASES)
def test_an_adapter_has_the_same_logits_here_and_written_back(case, tmp_path):
    from peft import PeftModel

    name, fields = MODELS[case]
    model = make(name, fields, 0.1)
    base = tmp_path / "base"
    length = {"train_length": L} if name == "Bloom" else {}
    adopt(saved(model, tmp_path / "model"), base, **length)
    made = adapted(model, CASES[case])
    expected = logits_of(made)
    made.save_pretrained(tmp_path / "adapter")
    peft.adopt_adapter(tmp_path / "adapter", tmp_path / "run", base)
    assert error(logits_here(tmp_path / "run"), expected) < 2e-4
    assert error(logits_here(base), expected) > 1e-3
    if case == "gpt2":
        with pytest.raises(ConfigError, match="and .* trained table; --layout=auto"):
            peft.save_adapter(tmp_path / "run", tmp_path / "again")
        return
    peft.save_adapter(tmp_path / "run", tmp_path / "again")
    again = PeftModel.from_pretrained(make(name, fields, 0.1), tmp_path / "again").eval()
    assert error(logits_of(again), expected) < 2e-4


def test_scales_and_ranks_of_single_maps_and_of_the_root_are_read(tmp_path):
    name, fields = MODELS["llama"]
    model = make(name, fields, 0.1)
    adopt(saved(model, tmp_path / "model"), tmp_path / "base")
    made = adapted(
        model,
        CASES["llama"],
        use_rslora=True,
        rank_pattern={"v_proj": 2},
        alpha_pattern={"down_proj": 7},
    )
    made.save_pretrained(tmp_path / "adapter")
    peft.adopt_adapter(tmp_path / "adapter", tmp_path / "run", tmp_path / "base")
    assert error(logits_here(tmp_path / "run"), logits_of(made)) < 2e-5
    loaded = by_path(posenc_jax.load_run(tmp_path / "run").model)
    assert not loaded["blocks.attention.k.lora_up"].any()


def test_what_is_more_than_low_rank_parts_is_refused(tmp_path):
    name, fields = MODELS["llama"]
    model = make(name, fields, 0.1)
    adopt(saved(model, tmp_path / "model"), tmp_path / "base")
    adapted(model, ["q_proj"], use_dora=True).save_pretrained(tmp_path / "adapter")
    with pytest.raises(DataError, match="use_dora = True has no form here"):
        peft.adopt_adapter(tmp_path / "adapter", tmp_path / "run", tmp_path / "base")
    with pytest.raises(ConfigError, match="holds low-rank parts alone"):
        peft.save_adapter(tmp_path / "base", tmp_path / "again")
    with pytest.raises(ConfigError, match="name the run of its base too: --base=RUN"):
        adopt(tmp_path / "adapter", tmp_path / "run")
    with pytest.raises(ConfigError, match="holds no adapter_config.json"):
        peft.adopt_adapter(tmp_path / "model", tmp_path / "run", tmp_path / "base")


def test_an_adapter_of_weights_that_were_trained_since_is_not_written(tmp_path):
    """PEFT would name the model that was adopted."""
    name, fields = MODELS["llama"]
    model = make(name, fields, 0.1)
    base = tmp_path / "base"
    adopt(saved(model, tmp_path / "model"), base)
    adapted(model, CASES["llama"]).save_pretrained(tmp_path / "adapter")
    loaded, tuned = load(base), Workdir(tmp_path / "tuned")
    tuned.create()
    config = dataclasses.replace(loaded.config, init_from=str(base))
    params = jax.device_get(loaded.parts.params())
    write_run(tuned, config, params, loaded.card["tokenizer"], np.zeros(0, np.uint64), "")
    peft.adopt_adapter(tmp_path / "adapter", tmp_path / "run", tuned.path)
    with pytest.raises(ConfigError, match="weights that were trained after .*model was adopted"):
        peft.save_adapter(tmp_path / "run", tmp_path / "again")
