"""The rotary settings of a config.json, in the spellings of transformers 4 and 5."""

from collections.abc import Mapping
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers
ORIGINAL, LONGEST = "original_max_position_embeddings", "max_position_embeddings"
LOCAL_BASE, PART, LATENT = "rope_local_base_freq", "partial_rotary_factor", "qk_rope_head_dim"
# The keys that a rope type needs, and those that it may have, beside those of SHARED.
KEYS: Mapping[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "proportional": (set(), {"factor"}),
    "dynamic": ({"factor"}, {"alpha"}),
    "yarn": (
        {"factor"},
        {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    ),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, set()),
    "longrope": ({"short_factor", "long_factor"}, {"factor", "attention_factor"}),
}
SHARED = {"rope_type", "type", "rope_theta", PART, ORIGINAL}
WITH_L = ("yarn", "llama3", "longrope")  # types whose formulas need L
ALIASES = {"rotary_emb_base": "rope_theta", "rotary_pct": PART}  # of GPT-NeoX
# Keys that models' own code reads, and no rope type.
OWN_KEYS = {"llama_4_scaling_beta", "mrope_section", "mrope_interleaved", "finetuned"}
# What the class of a model type sets where its files leave it out.
CLASSES = {
    "gemma3_text": {"rope_theta": 1e6, LOCAL_BASE: 1e4, "head_dim": 256, LONGEST: 131_072},
    "olmo3": {"rope_theta": 5e5, LOCAL_BASE: None},
    "gpt_neox": {PART: 0.25},
    "glm4": {PART: 0.5},
}


def stated(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The dictionary of the file that holds rotary settings."""
    return config.get("rope_scaling") or config.get("rope_parameters") or {}


def by_kind(config: Mapping[str, Any]) -> bool:
    """Whether the settings are those of kinds of layers."""
    return any(kind in stated(config) for kind in (FULL, SLIDING))


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A file with what its class sets, in one spelling."""
    own = {ALIASES.get(name, name): value for name, value in config.items()}
    return CLASSES.get(config.get("model_type"), {}) | own


def settings(config: Mapping[str, Any], layer_type: str = FULL) -> dict[str, Any] | None:
    """All settings of a kind of layer in one dictionary, or None where it does not rotate.

    Beside the keys of its rope type there are `rope_type`, `rope_theta`, `rotary_dims` R, L as
    `original_max_position_embeddings`, `max_position_embeddings`, `latent` for MLA, `given`, what
    the file states for this kind, and the `file`.
    """
    given, config = stated(config), completed(config)
    theta = config.get("rope_theta", 10_000.0)
    if by_kind(config):
        given = given.get(layer_type)
        if given is None:
            return None
    elif LOCAL_BASE in config and layer_type == SLIDING:
        given = {"rope_theta": config.get(LOCAL_BASE) or theta}
    given = {name: value for name, value in given.items() if value is not None}
    kind = given.get("rope_type", given.get("type", "default"))
    kind = {"su": "longrope", "mrope": "default"}.get(kind, kind)
    rope = {"rope_theta": theta, "factor": None} | given | {"rope_type": kind}
    part = given.get(PART, config.get(PART, 1.0))
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if layer_type == FULL:  # of Gemma 4
        size = config.get("global_head_dim", size)
    rope["rotary_dims"] = config.get(LATENT) or config.get("rotary_dim") or int(size * part)
    if kind == "proportional":
        rope["rotary_dims"] = size
    rope[PART] = part
    longest = rope[LONGEST] = config.get(LONGEST)
    beside = None if by_kind(config) else config.get(ORIGINAL)
    original = rope[ORIGINAL] = beside or given.get(ORIGINAL) or longest
    if rope["factor"] is None:
        rope["factor"] = longest / original if kind in WITH_L else 1.0
    return rope | {"latent": LATENT in config, "given": given, "file": config}
