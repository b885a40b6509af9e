"""Models of transformers with random weights, saved there and read here."""

import json

import jax
import jax.numpy as jnp
import numpy as np

import posenc_jax
from posenc_jax import pretrained
from posenc_jax.data import tokenizer

T, L, VOCAB = 600, 128, 300
LAMBDAS = [1.0, 1.2, 1.7, 2.6]  # of 8 rotary dims
LLAMA = dict(
    vocab_size=VOCAB,
    hidden_size=40,
    intermediate_size=72,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,  # not 40 / 4
    max_position_embeddings=L,
    rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
)
QWEN = LLAMA | {"tie_word_embeddings": True}
BLOOM = dict(vocab_size=VOCAB, hidden_size=48, n_layer=2)
MPT = dict(vocab_size=VOCAB, d_model=48, n_layers=2, max_seq_len=T)
GPT2 = dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=T)
NEOX = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=96,
    max_position_embeddings=L,
    rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
)
BASES = {"full_attention": 5000.0, "sliding_attention": 200.0}
PER_KIND = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in BASES.items()}
OLMO = {name: value for name, value in LLAMA.items() if name != "head_dim"}
GEMMA = LLAMA | {
    "tie_word_embeddings": True,
    "num_hidden_layers": 4,
    "sliding_window": 70,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 8,
    "rope_parameters": PER_KIND,
}
PHI = OLMO | {"pad_token_id": 0, "original_max_position_embeddings": L}
GEMMA2 = LLAMA | {
    "num_hidden_layers": 4,
    "sliding_window": 70,
    "query_pre_attn_scalar": 20,  # not K
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
GRANITE = OLMO | {
    "embedding_multiplier": 1.5,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.5,
    "logits_scaling": 0.7,
}
COHERE = OLMO | {"num_hidden_layers": 5, "sliding_window": 70, "logit_scale": 0.25}
MODELS = {
    "llama": ("Llama", LLAMA),
    "llama, tied": ("Llama", LLAMA | {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "mistral": ("Mistral", LLAMA | {"sliding_window": None}),
    "mistral with a window": ("Mistral", LLAMA | {"sliding_window": 70}),
    "qwen2": ("Qwen2", {k: v for k, v in QWEN.items() if k != "head_dim"}),
    "qwen2 with windows": (
        "Qwen2",
        {k: v for k, v in QWEN.items() if k != "head_dim"}
        | {"use_sliding_window": True, "sliding_window": 70, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", QWEN),
    "smollm3": ("SmolLM3", LLAMA | {"num_hidden_layers": 4, "pad_token_id": 0, "head_dim": 10}),
    "smollm3, all rotated": ("SmolLM3", LLAMA | {"no_rope_layers": [1, 1, 1], "pad_token_id": 0}),
    "smollm3 with windows": (
        "SmolLM3",
        LLAMA
        | {"num_hidden_layers": 4, "pad_token_id": 0, "use_sliding_window": True}
        | {"sliding_window": 70, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    ),
    "olmo2": ("Olmo2", OLMO),
    "olmo3": (
        "Olmo3",
        OLMO | {"num_hidden_layers": 5, "sliding_window": 70, "rope_parameters": PER_KIND},
    ),
    "gemma3": ("Gemma3", GEMMA),
    "phi3": ("Phi3", PHI),
    "phi3 with a window, rotated in part": (
        "Phi3",
        PHI
        | {"sliding_window": 70, "hidden_size": 32}
        | {"rope_parameters": LLAMA["rope_parameters"] | {"partial_rotary_factor": 0.75}},
    ),
    "gemma2": ("Gemma2", GEMMA2),
    "gemma2 without caps": (
        "Gemma2",
        GEMMA2 | dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping")),
    ),
    "gemma3 with a cap, whose scores are divided by another root": (
        "Gemma3",
        GEMMA | {"query_pre_attn_scalar": 20} | {"final_logit_softcapping": 20.0},
    ),
    "granite": ("Granite", GRANITE),
    "cohere2": ("Cohere2", COHERE),
    "gpt_neox": ("GPTNeoX", NEOX),
    "gpt_neox, sequential": ("GPTNeoX", NEOX | {"use_parallel_residual": False}),
    "gpt2": ("GPT2", GPT2),
    "bloom": ("Bloom", BLOOM | {"n_head": 4}),
    "bloom of six heads": ("Bloom", BLOOM | {"n_head": 6}),
    "mpt": ("Mpt", MPT | {"n_heads": 4}),
    "mpt of six heads": ("Mpt", MPT | {"n_heads": 6}),
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
NAME, FIELDS = MODELS["qwen2 with windows"]
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": L}
SCALED = {
    "qwen2 with windows, scaled in all layers": (NAME, FIELDS | {"rope_parameters": LINEAR}),
    "olmo3, scaled where it sees everything": (
        "Olmo3",
        MODELS["olmo3"][1]
        | {"max_position_embeddings": 8 * L}
        | {"rope_parameters": PER_KIND | {"full_attention": YARN | {"rope_theta": 5000.0}}},
    ),
    "phi3, scaled": (
        "Phi3",
        PHI
        | {"max_position_embeddings": 8 * L}
        | {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 5000.0,
                "short_factor": [*LAMBDAS, 3.0],
                "long_factor": [*LAMBDAS, 3.0],
            }
        },
    ),
    "cohere2, scaled where it rotates": ("Cohere2", COHERE | {"rope_parameters": LINEAR}),
    "gemma2, scaled in all layers": ("Gemma2", GEMMA2 | {"rope_parameters": LINEAR}),
    "gemma3, scaled where it sees everything": (
        "Gemma3",
        GEMMA | {"rope_parameters": PER_KIND | {"full_attention": LINEAR}},
    ),
    "gemma3, scaled where it has no layer": (
        "Gemma3",
        GEMMA
        | {"layer_types": ["sliding_attention"] * 4}
        | {"rope_parameters": PER_KIND | {"full_attention": LINEAR}},
    ),
}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPE_TYPES = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 1.0},
    "yarn": YARN,
    "yarn with its options": YARN
    | {"truncate": False, "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.1},
    "yarn with mscale": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    "yarn with equal mscales": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    "llama3": LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": L},
    "longrope": {
        "rope_type": "longrope",
        "factor": 8.0,
        "short_factor": LAMBDAS,
        "long_factor": LAMBDAS,
        "original_max_position_embeddings": L,
    },
}
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (2, T))


def make(name, fields, size=0.2):
    """A model with weights far from their initial values, norms and biases too."""
    import torch
    import transformers

    suffix = "TextConfig" if name == "Gemma3" else "Config"
    config = getattr(transformers, f"{name}{suffix}")(**fields)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    kind = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{name}{kind}")(config).eval()
    for path, parameter in model.named_parameters():
        scale = path.endswith("weight") and parameter.ndim == 1
        torch.nn.init.normal_(parameter, mean=float(scale), std=size)
    return model


def logits_of(model, tokens=TOKENS):
    import torch

    with torch.no_grad():
        return model(torch.tensor(tokens)).logits.numpy()


def saved(model, folder):
    model.save_pretrained(folder)
    bpe = tokenizer.train_bpe(["a text"], 256)
    (folder / "tokenizer.json").write_text(bpe.to_str(), encoding="utf-8")
    return folder


def ours(folder, scale=None, tokens=TOKENS, **options):
    model, encoding, _, _ = pretrained.load(folder, **options)
    if scale is not None:
        encoding = posenc_jax.extend("dynamic_ntk", encoding, scale)
    with jax.numpy_rank_promotion("allow"):
        return np.asarray(jax.jit(model.__call__)(jnp.asarray(tokens), encoding))


def error(logits, expected):
    assert np.std(expected) > 0.1
    return np.abs(logits - expected).max() / max(1, np.abs(expected).max())


def edited(folder, **fields):
    """The same files with other settings."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder
