"""Attention to a latent (MLA) against DeepSeek-V3 of transformers with the same random weights."""

import jax
import jax.numpy as jnp
import latents
import numpy as np
import pytest

import models
import posenc_jax

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

L, HEADS, LAYERS, VOCAB, HIDDEN, WIDTH = 64, 4, 3, 97, 96, 32
SIZES = {"head_dim": 24, "value_dim": 10, "latent_dim": 20, "rotary_dim": 16}
DIMS = posenc_jax.Dims(HEADS, SIZES["head_dim"], WIDTH, L, rotary_dim=SIZES["rotary_dim"])
FACTOR = 4.0


@pytest.mark.parametrize("mscale", [None, 1.0, 0.707])
def test_deepseek_beyond_its_trained_length(mscale):
    import torch
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    rope_parameters = {"rope_type": "default", "rope_theta": 10_000.0}
    if mscale is not None:
        rope_parameters |= {"rope_type": "yarn", "factor": FACTOR}
        rope_parameters |= {"mscale": mscale, "mscale_all_dim": mscale}
        rope_parameters["original_max_position_embeddings"] = L
    config = DeepseekV3Config(
        q_lora_rank=None,
        kv_lora_rank=SIZES["latent_dim"],
        qk_rope_head_dim=SIZES["rotary_dim"],
        qk_nope_head_dim=SIZES["head_dim"] - SIZES["rotary_dim"],
        v_head_dim=SIZES["value_dim"],
        max_position_embeddings=int(FACTOR * L),
        rope_parameters=rope_parameters,
        attn_implementation="eager",
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        first_k_dense_replace=LAYERS,  # no layer has experts
        num_mtp_layers=0,
    )
    torch.manual_seed(0)
    deepseek = DeepseekV3ForCausalLM(config).eval()
    for parameter in deepseek.parameters():
        torch.nn.init.normal_(parameter, mean=0.0, std=0.3)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (2, 4 * L))
    with torch.no_grad():
        expected = deepseek(torch.tensor(tokens)).logits.numpy()

    options: dict = dict(mlp_width=HIDDEN, vocab=VOCAB, activation="swiglu", tied=False)
    model = models.Transformer(
        models.Config(layers=LAYERS, width=WIDTH, heads=HEADS, **SIZES, **options),
        jax.random.key(0),
    )
    copy(deepseek, model)

    def distance(encoding):
        logits = jax.jit(model.__call__)(jnp.asarray(tokens), encoding)
        return np.abs(logits - expected).max()

    rope = posenc_jax.build("rope", DIMS, layout="interleaved")
    unlike = [posenc_jax.build("rope", DIMS)]
    if mscale is not None:
        without = posenc_jax.extend("yarn", rope, FACTOR, attention_factor=1.0)
        unlike += [rope, without]
        rope = posenc_jax.extend("yarn", rope, FACTOR, coefficient=0.1 * mscale)
    assert np.std(expected) > 0.1
    error = distance(rope)
    assert error < 2e-5
    assert min(map(distance, unlike)) > 100 * error


def copy(deepseek, model):
    layers = [
        {name: leaf.detach().numpy() for name, leaf in layer.named_parameters()}
        for layer in deepseek.model.layers
    ]
    of_attention = [
        latents.converted(
            {name.removeprefix("self_attn."): array for name, array in layer.items()},
            HEADS,
            SIZES["rotary_dim"],
        )
        for layer in layers
    ]
    latents.fill(
        model.blocks.attention,
        {name: np.stack([one[name] for one in of_attention]) for name in of_attention[0]},
    )
    stack = lambda name: np.stack([layer[name].T for layer in layers])  # noqa: E731
    model.blocks.attention_norm.scale[...] = stack("input_layernorm.weight")
    model.blocks.mlp_norm.scale[...] = stack("post_attention_layernorm.weight")
    for ours in ("gate", "up", "down"):
        getattr(model.blocks.mlp, ours).kernel[...] = stack(f"mlp.{ours}_proj.weight")
    model.embed.embedding[...] = deepseek.model.embed_tokens.weight.detach().numpy()
    model.norm.scale[...] = deepseek.model.norm.weight.detach().numpy()
    model.unembed.kernel[...] = deepseek.lm_head.weight.detach().numpy().T
