"""Our decoder against Hugging Face transformers with the same random weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import ROOT

import models
import posenc_jax
from conformance import peers as conformance
from posenc_jax.attention import attend
from posenc_jax.schemes import t5

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

L, HEADS, GROUPS, SIZE, LAYERS, VOCAB, HIDDEN = 64, 4, 2, 16, 3, 97, 96
WIDTH = HEADS * SIZE
LAMBDAS = [1.0, 1.1, 1.3, 1.7, 2.2, 3.0, 4.0, 5.0]

# rope_parameters there, and (extension, scale, options) here; L is what the model was trained at.
ROPE_TYPES = {
    "default": ({"rope_type": "default"}, None),
    "linear": ({"rope_type": "linear", "factor": 4.0}, ("pi", 4.0, {})),
    "dynamic": ({"rope_type": "dynamic", "factor": 1.0}, ("dynamic_ntk", 4.0, {})),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": L},
        ("yarn", 4.0, {}),
    ),
    "yarn-truncate": (
        {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": L,
            "truncate": False,
            "beta_fast": 4,
            "attention_factor": 1.1,
        },
        ("yarn", 8.0, {"truncate": False, "beta_fast": 4.0, "attention_factor": 1.1}),
    ),
    "llama3": (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": L,
        },
        ("llama3", 8.0, {}),
    ),
    "longrope": (
        {
            "rope_type": "longrope",
            "factor": 4.0,
            "short_factor": LAMBDAS,
            "long_factor": LAMBDAS,
            "original_max_position_embeddings": L,
        },
        ("longrope", 4.0, {"lambdas": LAMBDAS}),
    ),
}


def numpy_of(parameter):
    return jnp.asarray(parameter.detach().numpy())


def copy_llama(llama, model):
    """The same weights in our decoder. Linear layers hold their kernels transposed."""
    layers = llama.model.layers
    stack = lambda get: jnp.stack([numpy_of(get(layer)).T for layer in layers])  # noqa: E731
    blocks = model.blocks
    for ours, get in (
        (blocks.attention.q.kernel, lambda layer: layer.self_attn.q_proj.weight),
        (blocks.attention.k.kernel, lambda layer: layer.self_attn.k_proj.weight),
        (blocks.attention.v.kernel, lambda layer: layer.self_attn.v_proj.weight),
        (blocks.attention.out.kernel, lambda layer: layer.self_attn.o_proj.weight),
        (blocks.mlp.gate.kernel, lambda layer: layer.mlp.gate_proj.weight),
        (blocks.mlp.up.kernel, lambda layer: layer.mlp.up_proj.weight),
        (blocks.mlp.down.kernel, lambda layer: layer.mlp.down_proj.weight),
        (blocks.attention_norm.scale, lambda layer: layer.input_layernorm.weight),
        (blocks.mlp_norm.scale, lambda layer: layer.post_attention_layernorm.weight),
    ):
        new = stack(get)
        assert ours.shape == new.shape
        ours[...] = new
    model.embed.embedding[...] = numpy_of(llama.model.embed_tokens.weight)
    model.norm.scale[...] = numpy_of(llama.model.norm.weight)
    model.unembed.kernel[...] = numpy_of(llama.lm_head.weight).T


@pytest.mark.parametrize("case", ROPE_TYPES)
def test_llama_beyond_its_trained_length(case):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    theirs, ours = ROPE_TYPES[case]
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        # yarn and llama3 state the original length apart from the extended one.
        max_position_embeddings=L if case in ("default", "linear", "dynamic") else 8 * L,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_theta": 10_000.0, **theirs},
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    llama = LlamaForCausalLM(config).eval()
    for parameter in llama.parameters():  # far from the small initial values, norms included
        torch.nn.init.normal_(parameter, mean=0.0, std=0.15)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (2, 4 * L))
    with torch.no_grad():
        expected = llama(torch.tensor(tokens)).logits.numpy()

    model = models.Transformer(
        models.Config(
            layers=LAYERS,
            width=WIDTH,
            heads=HEADS,
            kv_heads=GROUPS,
            mlp_width=HIDDEN,
            vocab=VOCAB,
            activation="swiglu",
            tied=False,
        ),
        jax.random.key(0),
    )
    copy_llama(llama, model)
    rope = posenc_jax.build("rope", posenc_jax.Dims(HEADS, SIZE, WIDTH, L))
    plain = jax.jit(model.__call__)(jnp.asarray(tokens), rope)
    if ours is not None:
        name, scale, options = ours
        rope = posenc_jax.extend(name, rope, scale, **options)
    logits = jax.jit(model.__call__)(jnp.asarray(tokens), rope)
    assert np.std(expected) > 0.1
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)
    if ours is not None:
        assert np.abs(plain - expected).max() > 100 * np.abs(logits - expected).max()


@pytest.mark.parametrize("heads", [4, 6, 12])
def test_bloom_attention_is_alibi(heads):
    import torch
    from transformers import BloomConfig, BloomForCausalLM

    width = heads * SIZE
    config = BloomConfig(
        vocab_size=VOCAB, hidden_size=width, n_layer=1, n_head=heads, attn_implementation="eager"
    )
    torch.manual_seed(0)
    bloom = BloomForCausalLM(config).eval()
    block = bloom.transformer.h[0].self_attention
    for parameter in bloom.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    seen = {}
    block.query_key_value.register_forward_hook(lambda m, i, out: seen.update(fused=out))
    block.dense.register_forward_pre_hook(lambda m, i: seen.update(context=i[0]))
    length = 3 * L
    with torch.no_grad():
        bloom(torch.tensor(np.random.default_rng(0).integers(0, VOCAB, (2, length))))

    fused = seen["fused"].numpy().reshape(2, length, heads, 3, SIZE)
    q, k, v = (jnp.asarray(fused[..., i, :]) for i in range(3))
    alibi = posenc_jax.build("alibi", posenc_jax.Dims(heads, SIZE, width, L))
    out = attend(q, k, v, alibi).reshape(2, length, width)
    np.testing.assert_allclose(out, seen["context"].numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 300)])
def test_t5_bias(num_buckets, max_distance):
    import torch
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=WIDTH,
        d_kv=SIZE,
        num_heads=HEADS,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=True,
    )
    torch.manual_seed(0)
    attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    with torch.no_grad():
        expected = attention.compute_bias(4 * L, 4 * L)[0].numpy()
    dims = posenc_jax.Dims(HEADS, SIZE, WIDTH, L)
    encoding = posenc_jax.build(
        "t5",
        dims,
        jax.random.key(0),
        num_buckets=num_buckets,
        max_distance=max_distance,
        scale=1.0,  # T5 divides no q . k by sqrt(K), so its table is not multiplied by it
    ).replace(table=numpy_of(attention.relative_attention_bias.weight))
    bias = encoding.bias(jnp.arange(4 * L), jnp.arange(4 * L))
    seen = np.tril(np.ones((4 * L, 4 * L), bool))
    np.testing.assert_allclose(np.where(seen, bias, 0), np.where(seen, expected, 0), atol=1e-6)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 300), (64, 1000)])
def test_t5_buckets(num_buckets, max_distance):
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(3 * max_distance)
    expected = T5Attention._relative_position_bucket(
        torch.tensor(-distances), False, num_buckets, max_distance
    )
    ours = t5.bucket(distances, num_buckets, max_distance)
    # Theirs rounds a float32 logarithm; a distance exactly on an edge may fall one bucket lower.
    differ = np.flatnonzero(np.asarray(ours) != expected.numpy())
    assert len(differ) <= 1
    assert all(np.asarray(ours)[differ] - expected.numpy()[differ] == 1)


def test_transformers_passes_the_cases_that_the_page_says():
    page = (ROOT / "conformance" / "README.md").read_text()
    rows = [row.split(" | ")[:3] for row in conformance.rows("transformers")]
    assert len(rows) > 10 and all(" | ".join(row) in page for row in rows), rows
