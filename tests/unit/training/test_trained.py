"""LoRA, and a part of the weights: what a step changes, holds and computes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configured import problems_of
from sizes import config_of, rows

from configs.alibi import get_config
from posenc_jax.config import trained
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import train_step
from posenc_jax.training.optimizer import make

PARTS = ["*.lora_*", "blocks.0.attention.*,norm.*", "blocks.1-1.mlp.up.*,blocks.0.mlp.up.*", "none"]


def config(name="alibi", **fields):
    return config_of(name, **{"train_length": 8, "steps": 50, "warmup_steps": 5} | fields)


def settings(**fields):
    made = get_config()
    made.update_from_flattened_dict(fields)
    return made


def params_of(config):
    """Of the seed; the low-rank parts do something, and what is frozen is bfloat16."""
    params = parameters.make(config).params()
    for name, leaf in params["model"].items():
        if name.endswith("lora_up"):
            params["model"][name] = jnp.full_like(leaf, 0.01)
    for name, leaf in trained.split(params, config)[1].items():
        params["model"][name] = leaf.astype(jnp.bfloat16)
    return params


def started(config):
    params, optimizer = params_of(config), make(config)
    own, kept = trained.split(params, config)
    state = train_step.fresh_state(own, optimizer)
    step = train_step.train_step(
        parameters.blank(config), optimizer, config, devices.make_mesh(jax.devices()[:1])
    )
    return params, jax.tree.map(jnp.copy, state), step, kept


@pytest.mark.parametrize(
    "fields", [{}, {"model.remat": True}, {"accumulate": 2}], ids=["plain", "remat", "accumulate"]
)
@pytest.mark.parametrize("patterns", PARTS)
def test_a_step_has_the_gradient_of_what_is_trained_and_keeps_the_rest(patterns, fields):
    name = "fire" if patterns == "none" else "alibi"
    own = config(name, trains=patterns, **{"model.lora": 2, "model.layers": 2} | fields)
    params, state, step, kept = started(own)
    before = jax.tree.map(np.array, kept)
    parts, batch = parameters.blank(own), rows()

    def loss(params):
        return train_step.summed_loss(parts, params, batch, None, False) / batch.weights.sum()

    gradients, _ = trained.split(jax.grad(loss)(params), own)
    norm = np.sqrt(sum((np.float64(g) ** 2).sum() for g in jax.tree.leaves(gradients)))
    after, measured = step(state, kept, batch)
    np.testing.assert_allclose(measured["grad_norm"], norm, rtol=2e-2)  # of bfloat16 beside it
    names = set(trained.parts_of(params["model"], patterns))
    assert set(after["params"]["model"]) == names
    assert all(leaf.shape[:1] == (1,) for n, leaf in after["params"]["model"].items() if ".0." in n)
    for name, leaf in kept.items():
        assert leaf.dtype == jnp.bfloat16 and np.array_equal(leaf, before[name])
    whole = trained.whole(after["params"], kept, own)["model"]
    assert set(whole) == set(params["model"])
    moved = {
        name for name, leaf in whole.items() if not np.array_equal(leaf, params["model"][name])
    }
    assert moved == {part.array for part in trained.parts_of(params["model"], patterns).values()}


GPT2 = {"model.biases": "all", "model.tied": False}
GEMMA = {"model.embed_scale": True, "model.activation": "geglu", "model.kv_heads": 2}
GEMMA |= {"model.norm": "rms", "model.norm_place": "both", "model.head_dim": 6}
MLA = {"model.head_dim": 12, "model.latent_dim": 16, "model.rotary_dim": 4, "model.value_dim": 8}
FAMILIES = [(config("alibi"), 6), (config("learned", **GPT2), 6), (config("rope", **GEMMA), 7)]
FAMILIES += [(config("rope", **MLA), 7)]


@pytest.mark.parametrize(("plain", "maps"), FAMILIES, ids=["plain", "gpt2", "gemma", "mla"])
def test_low_rank_parts_are_a_product_added_to_each_map(plain, maps):
    own = dataclasses.replace(plain, model=dataclasses.replace(plain.model, lora=2))
    params = params_of(own)
    merged = {n: a.astype(jnp.float32) for n, a in params["model"].items() if ".lora_" not in n}
    for name in [name for name in merged if f"{name[:-6]}lora_up" in params["model"]]:
        down, up = (params["model"][f"{name[:-6]}lora_{one}"] for one in ("down", "up"))
        merged[name] += 2 * down @ up
    assert sum(name.endswith("lora_up") for name in params["model"]) == maps
    tokens = rows().inputs
    logits = [
        parts.model(tokens, parts.encoding)
        for parts in (
            parameters.blank(own).replace(params),
            parameters.blank(plain).replace(params | {"model": merged}),
        )
    ]
    np.testing.assert_allclose(*logits, atol=2e-5)


def test_a_step_of_low_rank_parts_computes_no_gradient_of_the_rest():
    def flops(**fields):
        own = config(**{"model.width": 128, "model.layers": 2, "model.scan": False} | fields)
        _, state, _, kept = started(own)
        parts = parameters.blank(own)

        def loss(trains, kept):
            whole = trained.whole(trains, kept, own)
            return train_step.summed_loss(parts, whole, rows(), None, False)

        lowered = jax.jit(jax.grad(loss)).lower(state["params"], kept)
        return lowered.compile().cost_analysis()["flops"]

    for remat in (False, True):
        whole = flops(**{"model.remat": remat})
        assert flops(**{"model.remat": remat, "model.lora": 1}) < 0.8 * whole


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        ("blocks.atention.*", "trains: 'blocks.atention.*' matches no array of the model; near it"),
        ("blocks.3-9.mlp.*", "names layers that are not there; they are 0-"),
        ("blocks.*,blocks.0.mlp.*", "names blocks.mlp"),
    ],
)
def test_a_pattern_that_names_nothing_or_something_twice_is_refused(patterns, problem):
    (found,) = problems_of(settings(trains=patterns))
    assert problem in found


def test_training_nothing_is_refused():
    (found,) = problems_of(settings(trains="none"))
    assert found == "trains = none trains nothing: encoding 'alibi' has no trained arrays"


def test_muon_with_low_rank_parts_is_refused():
    (found,) = problems_of(settings(optimizer="muon", **{"model.lora": 4}))
    assert "not with model.lora; use adamw" in found
