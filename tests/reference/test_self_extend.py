"""A Llama of Hugging Face transformers that attends by Self-Extend's table, written out by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import posenc_jax
from posenc_jax.attention import attend

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

HEADS, GROUPS, SIZE, LAYERS, LENGTH = 4, 2, 16, 2, 500
WINDOW, GROUP = 30, 8
DIMS = posenc_jax.Dims(HEADS, SIZE, HEADS * SIZE, 128)


def by_hand(rotary, q, k, v, shift):
    """All pairs twice, at their places and at those of their groups; the near ones of the first."""
    import torch
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    def scores(q_places, k_places):
        turned_q, _ = apply_rotary_pos_emb(q, q, *rotary(q, q_places[None]))
        turned_k, _ = apply_rotary_pos_emb(k, k, *rotary(k, k_places[None]))
        return turned_q @ turned_k.transpose(2, 3) / SIZE**0.5

    k, v = (x.repeat_interleave(HEADS // GROUPS, dim=1) for x in (k, v))
    place = torch.arange(LENGTH)
    back = place[:, None] - place[None, :]
    far = scores(place // GROUP + WINDOW - shift, place // GROUP)
    both = torch.where(back < WINDOW, scores(place, place), far)
    return torch.softmax(both.masked_fill(back < 0, -torch.inf), dim=-1) @ v


@pytest.mark.parametrize("floor", [True, False], ids=["paper", "authors"])
def test_every_layer_attends_by_the_table(floor):
    import torch
    import transformers
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=HEADS * SIZE,
        intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attn_implementation="by_hand",
    )
    rotary, found = LlamaRotaryEmbedding(config), []

    def attended(module, q, k, v, *_, **__):
        out = by_hand(rotary, q, k, v, WINDOW // GROUP if floor else WINDOW / GROUP)
        found.append([x.numpy().swapaxes(1, 2) for x in (q, k, v, out)])
        return out.transpose(1, 2), None

    transformers.AttentionInterface.register("by_hand", attended)
    torch.manual_seed(0)
    model = transformers.LlamaModel(config).eval()
    for parameter in model.parameters():  # far from the small initial values, norms included
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.tensor(np.random.default_rng(0).integers(3, 97, (2, LENGTH)))
    with torch.no_grad():  # at place 0 nothing is rotated before the table
        model(tokens, position_ids=torch.zeros_like(tokens), use_cache=False)

    name = f"self_extend:window={WINDOW}:group={GROUP}:floor={floor}"
    rope = posenc_jax.build("rope", DIMS)
    assert len(found) == LAYERS
    for *qkv, expected in found:
        q, k, v = map(jnp.asarray, qkv)
        for implementation in ("plain", "blockwise"):
            extended = posenc_jax.extend(name, rope, 1.0)
            out = attend(q, k, v, extended, implementation=implementation)
            np.testing.assert_allclose(out, expected, atol=1e-4, rtol=1e-4)
        assert np.abs(attend(q, k, v, rope) - expected).max() > 1e-2
