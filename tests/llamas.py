"""A small Llama in the files that a publisher would write."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from posenc_jax.data import tokenizer

V, D, H, G, K, F, LAYERS, L = 264, 16, 4, 2, 6, 24, 2, 32
LLAMA = {
    "model_type": "llama",
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": H,
    "num_key_value_heads": G,
    "head_dim": K,
    "intermediate_size": F,
    "max_position_embeddings": L,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "hidden_act": "silu",
}
TEXT = "It was the best of times, it was the worst of times. " * 40


def drawn(dtype=np.float32, config=LLAMA):
    """The arrays of a Llama."""
    vocab, width = config["vocab_size"], config["hidden_size"]
    mlp, size = config["intermediate_size"], config["head_dim"]
    queries, keys = (config[f"num_{kind}_heads"] * size for kind in ("attention", "key_value"))
    inner = {
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (mlp, width),
        "mlp.up_proj": (mlp, width),
        "mlp.down_proj": (width, mlp),
    }
    shapes = {"model.embed_tokens": (vocab, width), "model.norm": (width,)}
    shapes["lm_head"] = (vocab, width)
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in inner.items()}
    rng = np.random.default_rng(0)
    return {
        f"{name}.weight": (rng.normal(size=shape) * 0.2 + (len(shape) == 1)).astype(dtype)
        for name, shape in shapes.items()
    }


def write(folder, arrays=None, config=LLAMA, stated=None):
    folder.mkdir(exist_ok=True)
    arrays = drawn() if arrays is None else arrays
    names, index = list(arrays), {}
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        file = f"model-{number}.safetensors"
        save_file({name: arrays[name] for name in part}, folder / file)
        index |= dict.fromkeys(part, file)
    for file, content in (
        ("model.safetensors.index.json", {"weight_map": index}),
        ("config.json", config),
        ("tokenizer_config.json", stated or {}),
    ):
        (folder / file).write_text(json.dumps(content))
    bpe = tokenizer.train_bpe([TEXT], 257)
    bpe.add_special_tokens(["<s>"])
    (folder / "tokenizer.json").write_text(bpe.to_str())
    return folder


forward = jax.jit(lambda model, tokens, encoding: model(tokens, encoding))


def logits(loaded):
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, V, (1, 2 * L)))
    return np.asarray(forward(loaded.model, tokens, loaded.encoding))
