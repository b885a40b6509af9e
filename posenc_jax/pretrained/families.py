"""Published families of decoders: their names and settings in ours, one table each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from models import Config
from models.config import FACTOR
from posenc_jax import fields
from posenc_jax.checks import FARTHEST
from posenc_jax.fields import Rule, above_zero, one_of, true_or_false
from posenc_jax.pretrained.reading import (
    REQUIRED,
    Key,
    an_object,
    each,
    only,
    optional,
    read,
    text,
)
from posenc_jax.pretrained.rope import (
    BASE,
    FRACTION,
    FULL,
    LOCAL_BASE,
    ORIGINAL,
    WINDOWED,
    Rope,
    local_base_of,
    rope_of,
)

# Rows of a weight, and the numbers of heads of queries and of keys.
Split = Callable[[np.ndarray, int, int], list[np.ndarray]]


class Row(NamedTuple):
    """How the parameters of one of their modules become ours."""

    ours: tuple[str, ...]  # our modules
    parameters: Mapping[str, str]  # their names of parameters: ours
    split: Split
    transposed: bool = False  # of a weight: [out, in] for `split`, [in, out] here
    columns: bool = False  # of a weight: [in, out] there, as GPT-2's

    def paths(self, parameter: str) -> list[str]:
        return [f"{module}.{self.parameters[parameter]}" for module in self.ours]

    def arrays(self, parameter: str, array: np.ndarray, *heads: int) -> dict[str, np.ndarray]:
        parts = self.split(array.T if self.columns else array, *heads)
        parts = [part.T if self.transposed else part for part in parts]
        return dict(zip(self.paths(parameter), parts, strict=True))

    def array(self, parts: Sequence[np.ndarray], heads: int) -> np.ndarray:
        """The inverse: their array from ours."""
        joined = JOINS[self.split]([part.T if self.transposed else part for part in parts], heads)
        return joined.T if self.columns else joined


class Place(NamedTuple):
    """The parameter and the layer that a file's array is read into."""

    row: Row
    parameter: str  # as they name it
    layer: int  # 0 outside the layers


def places(names: Mapping[str, Row], layers: int) -> dict[str, Place]:
    """The places in a model with these layers, by the name of the array without a prefix."""
    return {
        f"{module.replace('.N.', f'.{layer}.')}.{parameter}": Place(row, parameter, layer)
        for module, row in names.items()
        for layer in range(layers if ".N." in module else 1)
        for parameter in row.parameters
    }


def whole(array: np.ndarray, heads: int, groups: int) -> list[np.ndarray]:
    return [array]


def thirds(array: np.ndarray, heads: int, groups: int) -> list[np.ndarray]:
    """Rows q | k | v."""
    return np.split(array, 3)


def grouped(array: np.ndarray, heads: int, groups: int) -> list[np.ndarray]:
    """Rows q | k | v, of heads that share keys."""
    q, k, v = np.split(array.reshape(heads + 2 * groups, -1, *array.shape[1:]), [heads, -groups])
    return [part.reshape(-1, *array.shape[1:]) for part in (q, k, v)]


def halves(array: np.ndarray, heads: int, groups: int) -> list[np.ndarray]:
    """Rows gate | up."""
    return np.split(array, 2)


def by_head(array: np.ndarray, heads: int, groups: int) -> list[np.ndarray]:
    """Rows [H, 3, K]."""
    heads_first = array.reshape(heads, 3, -1, *array.shape[1:])
    return [heads_first[:, i].reshape(-1, *array.shape[1:]) for i in range(3)]


def one_more(array: np.ndarray, heads: int, groups: int) -> list[np.ndarray]:
    """Scales 1 + w of a file that holds w; bfloat16 would round them."""
    return [array.astype(np.float32) + 1]


JOINS: Mapping[Split, Callable[[list[np.ndarray], int], np.ndarray]] = {  # inverses
    whole: lambda parts, heads: parts[0],
    **dict.fromkeys((thirds, grouped, halves), lambda parts, heads: np.concatenate(parts)),
    by_head: lambda parts, heads: np.concatenate(
        [part.reshape(heads, 1, -1, *part.shape[1:]) for part in parts], axis=1
    ).reshape(-1, *parts[0].shape[1:]),
    one_more: lambda parts, heads: parts[0] - 1,
}


def linear(ours: str, split: Split = whole, parts: Sequence[str] = "qkv") -> Row:
    names = {"weight": "kernel", "bias": "bias"}
    return Row(_modules(ours, split, parts), names, split, transposed=True)


def conv(ours: str, split: Split = whole) -> Row:
    """GPT-2's linear map, whose weight is [in, out] as ours is."""
    return linear(ours, split)._replace(columns=True)


def norm(ours: str) -> Row:
    return Row((ours,), {"weight": "scale", "bias": "bias"}, whole)


def embedding(ours: str, name: str = "embedding") -> Row:
    return Row((ours,), {"weight": name}, whole)


def _modules(ours: str, split: Split, parts: Sequence[str] = "qkv") -> tuple[str, ...]:
    return (ours,) if split is whole else tuple(f"{ours}.{part}" for part in parts)


ATTENTION, MLP = "model.blocks.attention", "model.blocks.mlp"
ATTENTION_NORM, MLP_NORM = "model.blocks.attention_norm", "model.blocks.mlp_norm"
ATTENTION_OUTPUT_NORM = "model.blocks.attention_output_norm"
MLP_OUTPUT_NORM = "model.blocks.mlp_output_norm"

# Their modules, N being the layer.
LLAMA = {
    "embed_tokens": embedding("model.embed"),
    "layers.N.input_layernorm": norm(ATTENTION_NORM),
    "layers.N.self_attn.q_proj": linear(f"{ATTENTION}.q"),
    "layers.N.self_attn.k_proj": linear(f"{ATTENTION}.k"),
    "layers.N.self_attn.v_proj": linear(f"{ATTENTION}.v"),
    "layers.N.self_attn.o_proj": linear(f"{ATTENTION}.out"),
    "layers.N.post_attention_layernorm": norm(MLP_NORM),
    "layers.N.mlp.gate_proj": linear(f"{MLP}.gate"),
    "layers.N.mlp.up_proj": linear(f"{MLP}.up"),
    "layers.N.mlp.down_proj": linear(f"{MLP}.down"),
    "norm": norm("model.norm"),
    "lm_head": linear("model.unembed"),
}
PHI3 = {
    name: row
    for name, row in LLAMA.items()
    if "_proj" not in name or name.endswith(("o_proj", "down_proj"))
}
PHI3 |= {
    "layers.N.self_attn.qkv_proj": linear(ATTENTION, grouped),
    "layers.N.mlp.gate_up_proj": linear(MLP, halves, ("gate", "up")),
}
QWEN3 = LLAMA | {
    "layers.N.self_attn.q_norm": norm(f"{ATTENTION}.q_norm"),
    "layers.N.self_attn.k_norm": norm(f"{ATTENTION}.k_norm"),
}
# `post_attention_layernorm`, the norm before the MLP in Llama, is one after attention here.
OLMO2 = QWEN3 | {
    "layers.N.post_attention_layernorm": norm(ATTENTION_OUTPUT_NORM),
    "layers.N.post_feedforward_layernorm": norm(MLP_OUTPUT_NORM),
}
GEMMA3_GGUF = OLMO2 | {"layers.N.pre_feedforward_layernorm": norm(MLP_NORM)}
GEMMA3 = {
    module: row._replace(split=one_more) if module.endswith("norm") else row
    for module, row in GEMMA3_GGUF.items()
}
GPT_NEOX = {
    "embed_in": embedding("model.embed"),
    "layers.N.input_layernorm": norm(ATTENTION_NORM),
    "layers.N.attention.query_key_value": linear(ATTENTION, by_head),
    "layers.N.attention.dense": linear(f"{ATTENTION}.out"),
    "layers.N.post_attention_layernorm": norm(MLP_NORM),
    "layers.N.mlp.dense_h_to_4h": linear(f"{MLP}.up"),
    "layers.N.mlp.dense_4h_to_h": linear(f"{MLP}.down"),
    "final_layer_norm": norm("model.norm"),
    "embed_out": linear("model.unembed"),
    "lm_head": linear("model.unembed"),
}
GPT2 = {
    "wte": embedding("model.embed"),
    "wpe": embedding("encoding", "table"),
    "h.N.ln_1": norm(ATTENTION_NORM),
    "h.N.attn.c_attn": conv(ATTENTION, thirds),
    "h.N.attn.c_proj": conv(f"{ATTENTION}.out"),
    "h.N.ln_2": norm(MLP_NORM),
    "h.N.mlp.c_fc": conv(f"{MLP}.up"),
    "h.N.mlp.c_proj": conv(f"{MLP}.down"),
    "ln_f": norm("model.norm"),
    "lm_head": linear("model.unembed"),
}
BLOOM = {
    "word_embeddings": embedding("model.embed"),
    "word_embeddings_layernorm": norm("model.embed_norm"),
    "h.N.input_layernorm": norm(ATTENTION_NORM),
    "h.N.self_attention.query_key_value": linear(ATTENTION, by_head),
    "h.N.self_attention.dense": linear(f"{ATTENTION}.out"),
    "h.N.post_attention_layernorm": norm(MLP_NORM),
    "h.N.mlp.dense_h_to_4h": linear(f"{MLP}.up"),
    "h.N.mlp.dense_4h_to_h": linear(f"{MLP}.down"),
    "ln_f": norm("model.norm"),
    "lm_head": linear("model.unembed"),
}
MPT = {
    "wte": embedding("model.embed"),
    "blocks.N.norm_1": norm(ATTENTION_NORM),
    "blocks.N.attn.Wqkv": linear(ATTENTION, thirds),
    "blocks.N.attn.out_proj": linear(f"{ATTENTION}.out"),
    "blocks.N.norm_2": norm(MLP_NORM),
    "blocks.N.ffn.up_proj": linear(f"{MLP}.up"),
    "blocks.N.ffn.down_proj": linear(f"{MLP}.down"),
    "norm_f": norm("model.norm"),
    "lm_head": linear("model.unembed"),
}

OUTPUTS = ("lm_head.", "embed_out.")
# Buffers of old files: masks and frequencies. `attention.bias` of NeoX is one, and
# `attention.query_key_value.bias` is not.
IGNORED = (
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    ".rotary_emb.inv_freq",
)

Settings = Mapping[str, Any]  # the values of the keys that a family reads


class Position(NamedTuple):
    """The encoding of a model, as fields of a run."""

    encoding: dict[str, Any]
    longest: int | None  # the longest length it was trained for; None: not stated
    rope: Rope | None = None


class Family(NamedTuple):
    """A family reads the keys of `sizes`, `usual` and `only`; any other key is ignored."""

    names: Mapping[str, Row]
    sizes: Mapping[str, str]  # fields of our model: keys of config.json
    options: Mapping[str, Any]  # further fields of our model
    position: Callable[[Settings], Position]
    usual: Mapping[str, Any]  # values of keys that config.json may leave out
    only: Mapping[str, Sequence[Any]] = {}  # `needed` of this family
    also: Mapping[str, str] = {}  # second names of keys
    powers: Mapping[str, float] = {}  # keys of which a power is ours, and its exponent
    architecture: str = "LlamaForCausalLM"  # the class of transformers
    prefix: str = "model."  # of the names of arrays in files

    @property
    def by_kind(self) -> bool:
        """True if rope_parameters are of kinds of layers."""
        return LOCAL_BASE in self.usual or self.position is rotary_of_olmo

    @property
    def needed(self) -> Mapping[str, Sequence[Any]]:
        """The values of keys that have a form here."""
        return {"is_causal": [True, None], **self.only}

    def name(self, array: str) -> str:
        """The name in files, where all arrays but the output have the prefix."""
        return array if array.startswith(OUTPUTS) else self.prefix + array


LENGTH = fields.whole(1, FARTHEST)
# Rules of the keys that are no size of our model.
RULES = {
    "max_position_embeddings": LENGTH,
    "n_positions": LENGTH,
    "seq_length": LENGTH,
    "max_seq_len": LENGTH,
    "rope_theta": BASE,
    "rotary_emb_base": BASE,
    "rotary_pct": FRACTION,
    "partial_rotary_factor": FRACTION,
    ORIGINAL: optional(fields.whole(2, FARTHEST)),
    "attn_logit_softcapping": optional(FACTOR),
    "final_logit_softcapping": optional(FACTOR),
    "rope_parameters": an_object,
    "rope_scaling": an_object,
    "sliding_window": optional(LENGTH),
    "use_sliding_window": true_or_false,
    "max_window_layers": fields.whole(0),
    "layer_types": each(one_of(FULL, WINDOWED)),
    "sliding_window_pattern": fields.whole(1),
    "rope_local_base_freq": BASE,
    "no_rope_layers": each(only(0, 1)),
    "no_rope_layer_interval": fields.whole(1),
    "expansion_ratio": fields.whole(1, 2**10),
    "attn_config": an_object,
    "attn_config.alibi_bias_max": above_zero(1e-6, 1e6),
}


def rotary(settings: Settings) -> Position:
    """RoPE in every layer, or `hybrid` where some layers have a window or no rotation."""
    found, longest = rope_of(settings), settings["max_position_embeddings"]
    layers, interval = range(settings["num_hidden_layers"]), settings.get("no_rope_layer_interval")
    usual = [not interval or (layer + 1) % interval != 0 for layer in layers]
    rotated = _of_layers(settings, "no_rope_layers") or usual
    windowed, window = [False for _ in layers], settings.get("sliding_window")
    stated = _of_layers(settings, "layer_types")
    if window is not None and settings.get("use_sliding_window", True):
        first, every = settings.get("max_window_layers", 0), settings.get("sliding_window_pattern")
        usual = [layer >= first and (not interval or not rotated[layer]) for layer in layers]
        usual = [(layer + 1) % every != 0 for layer in layers] if every else usual
        windowed = [kind == WINDOWED for kind in stated] or usual
    elif WINDOWED in stated:
        raise ValueError(f"layer_types has {WINDOWED}, but sliding_window is null or unused")
    if all(rotated) and not any(windowed):
        encoding = {"name": "rope", "base": found.base, "fraction": found.fraction}
        return Position(encoding, longest, found)
    if not any(windowed):
        windowed, window = rotated, 0
    if not all(rotated) and windowed != rotated:  # `hybrid` has two kinds of layers
        raise ValueError(
            "beside windows, the layers without rotation must be those that see everything"
        )
    kinds = ["local" if one else "global" for one in windowed]
    if found.extension and LOCAL_BASE not in settings:  # in layers with a window too
        found = found._replace(extension=found.extension | {"layers": "all"})
    elif LOCAL_BASE in settings and all(windowed):  # what is extended has no layer
        found = found._replace(kind="default", factor=1.0, extension={})
    options = {"window": window, "global_rope": all(rotated) and "global" in kinds}
    options |= {"pattern": _period(kinds), "fraction": found.fraction}
    local = local_base_of(settings, found)
    options |= {"local_base": local} if local != found.base and "local" in kinds else {}
    return Position({"name": "hybrid", "base": found.base} | options, longest, found)


def rotary_of_gemma2(settings: Settings) -> Position:
    """The same with windows in every other layer."""
    return rotary({**settings, "sliding_window_pattern": 2})


def rotary_of_phi(settings: Settings) -> Position:
    """The same, whose only rope scaling is LongRoPE, which older files call su or yarn."""
    given = settings["rope_scaling"] or settings["rope_parameters"] or {}
    kind = given.get("rope_type", given.get("type", "default"))
    only("default", "longrope", "su", "yarn")("rope type", kind)
    kind = "default" if kind == "default" else "longrope"
    return rotary({**settings, "rope_scaling": {**given, "rope_type": kind}})


def rotary_of_cohere(settings: Settings) -> Position:
    """Interleaved RoPE in the layers with windows alone."""
    every, layers = settings["sliding_window_pattern"], range(settings["num_hidden_layers"])
    usual = [WINDOWED if (layer + 1) % every else FULL for layer in layers]
    kinds = _of_layers(settings, "layer_types") or usual
    rotated = [int(kind == WINDOWED) for kind in kinds]
    found = rotary({**settings, "layer_types": kinds, "no_rope_layers": rotated})
    return found._replace(encoding=found.encoding | {"layout": "interleaved"})


def rotary_of_olmo(settings: Settings) -> Position:
    """The same with OLMo 3's own pattern and base of layers with windows."""
    return rotary({**settings, "sliding_window_pattern": 4, LOCAL_BASE: 5e5})


def _of_layers(settings: Settings, key: str) -> list[Any]:
    """What a list states of each layer; empty: nothing."""
    stated, layers = settings.get(key), settings["num_hidden_layers"]
    if stated is not None and len(stated) < layers:
        raise ValueError(f"{key} has {len(stated)} entries for {layers} layers")
    return (stated or [])[:layers]


def _period(kinds: list[str]) -> str:
    """The shortest pattern that repeats to these layers."""
    lengths, layers = range(1, len(kinds) + 1), len(kinds)
    repeating = (n for n in lengths if (kinds[:n] * (layers // n + 1))[:layers] == kinds)
    return ",".join(kinds[: next(repeating)])


def learned(settings: Settings) -> Position:
    return Position({"name": "learned"}, settings["n_positions"])


def alibi_of_bloom(settings: Settings) -> Position:
    return Position({"name": "alibi"}, settings["seq_length"])


def alibi_of_mpt(settings: Settings) -> Position:
    """Slopes 2^-(m i / P), i = 1 .. P of the next higher power P of two, even i first."""
    heads, most = settings["n_heads"], settings["attn_config.alibi_bias_max"]
    power = 1 << (heads - 1).bit_length()
    slopes = 2.0 ** (-most * np.arange(1, power + 1) / power)
    if power != heads:
        slopes = np.concatenate([slopes[1::2], slopes[::2]])[:heads]
    return Position({"name": "alibi", "slopes": slopes.tolist()}, settings["max_seq_len"])


USUAL_SIZES = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
    "tied": "tie_word_embeddings",
}
LLAMA_SIZES = USUAL_SIZES | {
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "mlp_width": "intermediate_size",
    "norm_eps": "rms_norm_eps",
}
LLAMA_OPTIONS: dict[str, Any] = {"norm": "rms", "activation": "swiglu"}
LENGTH_KEYS = "max_position_embeddings", ORIGINAL, "rope_parameters", "rope_scaling"
LENGTH_USUAL: dict[str, Any] = dict.fromkeys(LENGTH_KEYS)
LLAMA_USUAL = LENGTH_USUAL | {
    "num_key_value_heads": None,
    "head_dim": None,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 1e4,
}
LAYER_USUAL = {"tie_word_embeddings": True, "layer_norm_epsilon": 1e-5}
LAYER_OPTIONS = {"norm": "layer", "activation": "gelu_erf", "biases": "all"}
SILU: Mapping[str, Sequence[Any]] = {"hidden_act": ["silu"]}
UNBIASED = SILU | {"attention_bias": [False]}

LLAMA_FAMILY = Family(
    LLAMA, LLAMA_SIZES, LLAMA_OPTIONS, rotary, LLAMA_USUAL, UNBIASED | {"mlp_bias": [False]}
)
WINDOWS_USUAL = LLAMA_USUAL | {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "layer_types": None,
}
QWEN_USUAL = WINDOWS_USUAL | {"max_window_layers": 28}
QWEN2_FAMILY = LLAMA_FAMILY._replace(
    options=LLAMA_OPTIONS | {"biases": "qkv"},
    usual=QWEN_USUAL,
    only=SILU,
    architecture="Qwen2ForCausalLM",
)
OLMO2_USUAL = LLAMA_USUAL | {"rms_norm_eps": 1e-5}
OLMO2_FAMILY = LLAMA_FAMILY._replace(
    names=OLMO2,
    options=LLAMA_OPTIONS | {"norm_place": "output", "qk_norm": True, "qk_norm_of": "all"},
    usual=OLMO2_USUAL,
    only=UNBIASED,
    architecture="Olmo2ForCausalLM",
)
PATTERN_USUAL = {"sliding_window": 4096, "layer_types": None}
GEMMA_OPTIONS = {"norm": "rms", "norm_place": "both", "activation": "geglu", "embed_scale": True}
GEMMA_SIZES = LLAMA_SIZES | {"score_size": "query_pre_attn_scalar"}
GEMMA_SIZES |= {"logit_cap": "final_logit_softcapping"}
GEMMA_USUAL = LLAMA_USUAL | PATTERN_USUAL | {"num_key_value_heads": 4, "head_dim": 256}
GEMMA_USUAL |= {"tie_word_embeddings": True, "query_pre_attn_scalar": 256}
GEMMA2_FAMILY = LLAMA_FAMILY._replace(
    names=GEMMA3,  # without norms of queries and keys
    sizes=GEMMA_SIZES | {"score_cap": "attn_logit_softcapping"},
    options=GEMMA_OPTIONS,
    position=rotary_of_gemma2,
    usual=GEMMA_USUAL | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    only={
        "hidden_activation": ["gelu_pytorch_tanh"],
        "attention_bias": [False],
        "use_bidirectional_attention": [False, None],
    },
    architecture="Gemma2ForCausalLM",
)
MISTRAL_USUAL = LLAMA_USUAL | {"sliding_window": 4096, "num_key_value_heads": 8}
MISTRAL_FAMILY = LLAMA_FAMILY._replace(
    usual=MISTRAL_USUAL,
    only=SILU,
    architecture="MistralForCausalLM",
)
GEMMA3_FAMILY = GEMMA2_FAMILY._replace(
    sizes=GEMMA_SIZES,
    options=GEMMA_OPTIONS | {"qk_norm": True},
    position=rotary,
    usual=GEMMA_USUAL
    | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}
    | {"final_logit_softcapping": None},
    architecture="Gemma3ForCausalLM",
)
GRANITE = {"embed_factor": "embedding_multiplier", "residual_factor": "residual_multiplier"}
GRANITE |= {"score_size": "attention_multiplier", "logit_factor": "logits_scaling"}
COHERE_OPTIONS = LLAMA_OPTIONS | {"norm": "layer_without_bias"}
COHERE_OPTIONS |= {"parallel": True, "shared_norm": True}
COHERE_USUAL = LENGTH_USUAL | PATTERN_USUAL | {"num_key_value_heads": None, "head_dim": None}
COHERE_USUAL |= {"tie_word_embeddings": True, "rope_theta": 1e4, "sliding_window_pattern": 4}
COHERE_USUAL |= {"layer_norm_eps": 1e-5, "logit_scale": 0.0625}
MPT_MLP = "expansion_ratio * d_model"
FAMILIES = {
    "llama": LLAMA_FAMILY,
    "mistral": MISTRAL_FAMILY,
    "ministral": MISTRAL_FAMILY._replace(
        usual=MISTRAL_USUAL | {"layer_types": None}, architecture="MinistralForCausalLM"
    ),
    "qwen2": QWEN2_FAMILY,
    "qwen3": QWEN2_FAMILY._replace(
        names=QWEN3,
        usual=QWEN_USUAL | {"head_dim": 128},
        options=LLAMA_OPTIONS | {"qk_norm": True},
        only=UNBIASED,
        architecture="Qwen3ForCausalLM",
    ),
    "smollm3": LLAMA_FAMILY._replace(
        usual=WINDOWS_USUAL
        | {
            "tie_word_embeddings": True,
            "rope_theta": 2e6,
            "sliding_window": None,
            "no_rope_layers": None,
            "no_rope_layer_interval": 4,
        },
        architecture="SmolLM3ForCausalLM",
    ),
    "olmo2": OLMO2_FAMILY,
    "olmo3": OLMO2_FAMILY._replace(
        position=rotary_of_olmo,
        usual=OLMO2_USUAL | PATTERN_USUAL | {"rope_theta": 5e5},
        architecture="Olmo3ForCausalLM",
    ),
    "phi3": LLAMA_FAMILY._replace(
        names=PHI3,
        position=rotary_of_phi,
        usual=OLMO2_USUAL | {"sliding_window": None, "partial_rotary_factor": 1.0, ORIGINAL: 4096},
        only=SILU,
        architecture="Phi3ForCausalLM",
    ),
    "granite": LLAMA_FAMILY._replace(
        sizes=LLAMA_SIZES | GRANITE,
        usual=LLAMA_USUAL | dict.fromkeys(GRANITE.values(), 1.0),
        powers={"attention_multiplier": -2, "logits_scaling": -1},
        architecture="GraniteForCausalLM",
    ),
    "cohere2": LLAMA_FAMILY._replace(
        sizes=LLAMA_SIZES | {"norm_eps": "layer_norm_eps", "logit_factor": "logit_scale"},
        options=COHERE_OPTIONS,
        position=rotary_of_cohere,
        usual=COHERE_USUAL,
        only=UNBIASED,
        architecture="Cohere2ForCausalLM",
    ),
    "gemma2": GEMMA2_FAMILY,
    "gemma2_gguf": GEMMA2_FAMILY._replace(names=GEMMA3_GGUF),  # whose scales are 1 + w
    "gemma3_text": GEMMA3_FAMILY,
    "gemma3_gguf": GEMMA3_FAMILY._replace(names=GEMMA3_GGUF),
    "gpt_neox": Family(
        GPT_NEOX,
        USUAL_SIZES
        | {
            "mlp_width": "intermediate_size",
            "norm_eps": "layer_norm_eps",
            "parallel": "use_parallel_residual",
        },
        LAYER_OPTIONS,
        rotary,
        LENGTH_USUAL
        | {
            "layer_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
            "rotary_pct": 0.25,
            "rotary_emb_base": 1e4,
        },
        {"hidden_act": ["gelu"], "attention_bias": [True]},
        architecture="GPTNeoXForCausalLM",
        prefix="gpt_neox.",
    ),
    "gpt2": Family(
        GPT2,
        USUAL_SIZES
        | {
            "layers": "n_layer",
            "width": "n_embd",
            "heads": "n_head",
            "mlp_width": "n_inner",
            "norm_eps": "layer_norm_epsilon",
        },
        LAYER_OPTIONS | {"activation": "gelu"},
        learned,
        LAYER_USUAL | {"n_inner": None, "n_positions": 1024},
        {
            "activation_function": ["gelu_new", "gelu_pytorch_tanh"],
            "scale_attn_weights": [True],
            "scale_attn_by_inverse_layer_idx": [False],
            "add_cross_attention": [False],
        },
        {
            "hidden_size": "n_embd",
            "max_position_embeddings": "n_positions",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
        },
        architecture="GPT2LMHeadModel",
        prefix="transformer.",
    ),
    "bloom": Family(
        BLOOM,
        USUAL_SIZES | {"layers": "n_layer", "heads": "n_head", "norm_eps": "layer_norm_epsilon"},
        LAYER_OPTIONS | {"activation": "gelu", "embed_norm": True},
        alibi_of_bloom,
        LAYER_USUAL | {"seq_length": None},
        {"apply_residual_connection_post_layernorm": [False]},
        {
            "n_embed": "hidden_size",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
        },
        architecture="BloomForCausalLM",
        prefix="transformer.",
    ),
    "mpt": Family(
        MPT,
        USUAL_SIZES
        | {
            "layers": "n_layers",
            "width": "d_model",
            "heads": "n_heads",
            "mlp_width": MPT_MLP,
            "norm_eps": "layer_norm_epsilon",
        },
        {"norm": "layer_without_bias", "activation": "gelu_erf"},
        alibi_of_mpt,
        LAYER_USUAL
        | {
            "expansion_ratio": 4,
            MPT_MLP: None,
            "max_seq_len": 2048,
            "attn_config": None,
            "attn_config.alibi_bias_max": 8,
        },
        {
            "no_bias": [True],
            "logit_scale": [None],
            "attn_config.alibi": [True],
            "attn_config.attn_type": ["multihead_attention"],
            "attn_config.clip_qkv": [None],
            "attn_config.softmax_scale": [None],
            "attn_config.qk_ln": [False],
            "attn_config.prefix_lm": [False],
        },
        {
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
        },
        architecture="MptForCausalLM",
        prefix="transformer.",
    ),
}
PREFIXES = ("model.", "transformer.", "gpt_neox.")  # of names, which some files leave out

# Unsupported features, by the key of config.json that turns them on.
LACKING = {
    "num_experts": "a mixture of experts",
    "num_local_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "attn_logit_softcapping": "a soft cap on logits of attention",
    "final_logit_softcapping": "a soft cap on logits",
    "quantization_config": "quantised weights",
    "text_config": "a model that reads more than text",
}


def family_of(config: Any) -> Family:
    """The family of a config.json; a ValueError says what the decoder lacks for it."""
    kind = read("config.json", config, {"model_type": Key(text)})["model_type"]
    reads = FAMILIES[kind].usual if kind in FAMILIES else {}
    lacking = [f"{w} ({key})" for key, w in LACKING.items() if config.get(key) and key not in reads]
    if lacking:
        raise ValueError(f"model_type {kind!r} is not supported: {'; '.join(lacking)}")
    if kind == "mistral" and config.get("layer_types") is not None:  # as transformers does
        kind = "ministral"
    if kind not in FAMILIES:
        raise ValueError(f"model_type {kind!r} is not supported; have: {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def rules_of(family: Family) -> dict[str, Rule]:
    """Rules of the keys of a config.json."""
    ours = {field.name: field.rule for field in fields.fields(Config) if field.rule}
    values = {name: only(*allowed) for name, allowed in family.needed.items()}
    return {theirs: ours[name] for name, theirs in family.sizes.items()} | RULES | values


def settings_of(config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """What a config.json states or leaves to the family; a ValueError lists all that is wrong."""
    stated = dict(config)
    for second, name in family.also.items():
        if second in config and config.get(name, config[second]) != config[second]:
            raise ValueError(f"config.json: {name} and {second}, its other name, differ")
        if second in config:
            stated[name] = config[second]
    for name, inner in config.items():
        if isinstance(inner, Mapping):
            stated |= {f"{name}.{key}": value for key, value in inner.items()}
    usual = dict.fromkeys(family.sizes.values(), REQUIRED) | dict(family.usual)
    usual |= {name: allowed[0] for name, allowed in family.needed.items()}
    rules = rules_of(family)
    settings = read("config.json", stated, {n: Key(rules[n], one) for n, one in usual.items()})
    if "expansion_ratio" in settings:
        settings[MPT_MLP] = settings["expansion_ratio"] * settings["d_model"]
    for name, exponent in family.powers.items():
        settings[name] **= exponent
    return settings
