"""Attention of decoders whose layers differ, layer by layer, against Hugging Face transformers."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import trained
from posenc_jax.layers import Wrapper

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

HEADS, GROUPS, SIZE, LAYERS, LENGTH = 4, 2, 16, 4, 500
DIMS = posenc_jax.Dims(HEADS, SIZE, HEADS * SIZE, 128, LAYERS)
SIZES = dict(
    vocab_size=97,
    hidden_size=HEADS * SIZE,
    head_dim=SIZE,
    intermediate_size=32,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    num_key_value_heads=GROUPS,
    attn_implementation="eager",
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
ROTATION = {"rope_type": "default", "rope_theta": 10_000.0}


class WithSink(Wrapper):
    weights: jax.Array = trained()  # [H]

    def sink(self, tokens):
        return self.weights[None, :, None]


class Case(NamedTuple):
    """A family of models, what its configuration says, and the same said here."""

    family: str
    fields: dict[str, Any]
    encoding: str
    options: dict[str, Any]
    extension: tuple[str, float] = ("none", 1.0)


YARN = dict(ROTATION, rope_type="yarn", factor=8.0, original_max_position_embeddings=128)
CASES = {
    "cohere2": Case(
        "Cohere2",
        dict(sliding_window=100, rope_parameters=ROTATION),
        "hybrid",
        dict(window=100, layout="interleaved"),
    ),
    "gpt_oss": Case(
        "GptOss",
        dict(
            sliding_window=33,
            num_local_experts=2,
            num_experts_per_tok=1,
            rope_parameters=YARN | {"truncate": False},
        ),
        "hybrid",
        dict(pattern="local,global", window=33, global_rope=True),
        extension=("yarn:truncate=False:layers=all", 8.0),
    ),
    "llama4": Case(
        "Llama4Text",
        dict(
            attention_chunk_size=90,
            floor_scale=128,
            use_qk_norm=False,
            moe_layers=[],
            intermediate_size_mlp=32,
            rope_parameters=ROTATION,
        ),
        "ssmax",
        dict(
            inner="hybrid:chunked=True:window=90:layout=interleaved", kind="llama4", layers="global"
        ),
    ),
}


def model_of(case):
    import torch
    import transformers

    config = getattr(transformers, f"{case.family}Config")(**SIZES | case.fields)
    torch.manual_seed(0)
    model = getattr(transformers, f"{case.family}Model")(config).eval()
    for parameter in model.parameters():  # far from the small initial values, norms included
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def heads_of(found):  # [B, T, H K] -> [B, T, H, K]
    return found.reshape(*found.shape[:2], -1, SIZE)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_attends_as_ours_does(name):
    import torch

    case = CASES[name]
    model = model_of(case)
    found: list[dict[str, np.ndarray]] = [{} for _ in range(LAYERS)]
    for layer, store in zip(model.layers, found, strict=True):
        for side in "qkv":
            getattr(layer.self_attn, f"{side}_proj").register_forward_hook(
                lambda _, given, out, store=store, side=side: store.update({side: out.numpy()})
            )
        layer.self_attn.o_proj.register_forward_pre_hook(
            lambda _, given, store=store: store.update(out=given[0].numpy())
        )
    tokens = np.random.default_rng(0).integers(3, 97, (2, LENGTH))
    with torch.no_grad():
        model(torch.tensor(tokens), use_cache=False)

    plain = posenc_jax.build(case.encoding, DIMS, **case.options)
    encoding = posenc_jax.extend(case.extension[0], plain, case.extension[1])
    for index, (layer, store) in enumerate(zip(model.layers, found, strict=True)):
        own = encoding.layer(index)
        if hasattr(layer.self_attn, "sinks"):
            sinks = jnp.asarray(layer.self_attn.sinks.detach().numpy())
            own = WithSink(dims=DIMS, inner=own, weights=sinks)
        q, k, v = (jnp.asarray(heads_of(store[side])) for side in "qkv")
        expected = heads_of(store["out"])
        for implementation in ("plain", "blockwise"):
            out = attend(q, k, v, own, implementation=implementation)
            np.testing.assert_allclose(out, expected, atol=1e-4, rtol=1e-4)
        kind = encoding.kind_of_layer
        other = next(i for i in range(LAYERS) if kind(i) != kind(index))
        assert np.abs(attend(q, k, v, encoding.layer(other)) - expected).max() > 1e-2
