"""The rotary settings of a config.json, in each of the three spellings that the Hub has."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from posenc_jax.checks import FARTHEST, LARGEST, LARGEST_SCALE, LEAST
from posenc_jax.fields import above_zero, between, true_or_false, whole
from posenc_jax.pretrained.reading import Key, an_object, each, only, read

BASE = above_zero(LEAST, LARGEST)
FRACTION = above_zero(0, 1)
FULL, WINDOWED = "full_attention", "sliding_attention"  # kinds of layers
LOCAL_BASE = "rope_local_base_freq"
OBJECT = Key(an_object, None)


class Rope(NamedTuple):
    """Rotary settings in our terms."""

    base: float
    fraction: float
    kind: str  # the rope type as the file states it
    factor: float
    original: int | None  # L of the formulas; None: the model's longest length
    extension: dict[str, Any]  # fields of `extension`; empty: none


def rope_of(settings: Mapping[str, Any]) -> Rope:
    """`rope_scaling`, or else `rope_parameters`; what neither states is beside them.

    A ValueError names settings that have no form here.
    """
    parameters, scaling = settings["rope_parameters"] or {}, settings["rope_scaling"] or {}
    given = scaling or parameters
    if LOCAL_BASE in settings:  # of a family with settings per kind of layer
        if parameters and not {FULL, WINDOWED} & set(parameters):  # which transformers ignores
            found = ", ".join(parameters)
            raise ValueError(f"rope_parameters must have keys {FULL} and {WINDOWED}; got {found}")
        own = read("rope_parameters", parameters, {FULL: OBJECT})[FULL] or {}
        given = {**own, **scaling}
    given = {name: value for name, value in given.items() if value is not None}
    nested = [name for name, value in given.items() if isinstance(value, Mapping)]
    if nested:
        raise ValueError(f"rotary settings per kind of layer are not supported: {nested}")
    kind = given.get("rope_type", given.get("type", "default"))
    if not isinstance(kind, str) or kind not in _TYPES:
        known = ", ".join(_TYPES)
        raise ValueError(f"rope type {kind!r} is not supported; those that are: {known}")
    theta = settings.get("rope_theta", settings.get("rotary_emb_base"))
    keys = {"rope_theta": Key(BASE, theta)}
    fraction = settings.get("partial_rotary_factor", settings.get("rotary_pct"))
    if fraction is not None:  # of the families whose heads are rotated in part
        keys["partial_rotary_factor"] = Key(FRACTION, fraction)
    needed, optional, extension_of = _TYPES[kind]
    keys |= {name: Key(_RULES[name]) for name in needed}
    keys |= {name: Key(_RULES[name], None) for name in optional}
    found = read(f"rope type {kind!r}", given, keys)
    longest, original = settings["max_position_embeddings"], found.get(ORIGINAL)
    # The one outside decides. Beside a linear factor, which has none, our exports state L there.
    if kind == "linear" or ORIGINAL in optional and LOCAL_BASE not in settings:
        original = settings.get(ORIGINAL) or original
    factor = found.get("factor", 1)
    if factor is None:  # of LongRoPE
        factor = longest / original if longest and original else 1
    extension = extension_of(found)
    scaled = {"scale": float(factor)} | extension if extension else {}
    base, fraction = found["rope_theta"], found.get("partial_rotary_factor", 1)
    return Rope(float(base), float(fraction), kind, float(factor), original, scaled)


def local_base_of(settings: Mapping[str, Any], found: Rope) -> float:
    """The base of layers with windows, which have no other rotary settings of their own."""
    parameters = settings["rope_parameters"] or {}
    stated = read("rope_parameters", parameters, {WINDOWED: OBJECT})[WINDOWED] or {}
    keys = {
        "rope_type": Key(only("default"), "default"),
        "rope_theta": Key(BASE, settings.get(LOCAL_BASE, found.base)),
    }
    return float(read(WINDOWED, stated, keys)["rope_theta"])


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _linear(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "pi"}


def _dynamic(found: Mapping[str, Any]) -> dict[str, Any]:
    """Within L it is plain RoPE; beyond, the extension `dynamic_ntk` if its factor is 1."""
    factor = found["factor"]
    if found["alpha"]:  # Hunyuan
        raise ValueError(
            "rope type 'dynamic' with alpha has one base at every length: write rope_theta x "
            "alpha^(R / (R - 2)) as rope_theta, R being the rotary dims, and no alpha"
        )
    if factor != 1:
        raise ValueError(
            f"rope type 'dynamic' with factor {factor:g} is not dynamic_ntk, whose factor is 1: "
            "write factor 1 to adopt the model as it is within its length"
        )
    return {}


YARN = ("beta_fast", "beta_slow", "attention_factor", "truncate")


def _yarn(found: Mapping[str, Any]) -> dict[str, Any]:
    factor, scale, all_dims = (found[name] for name in ("factor", "mscale", "mscale_all_dim"))
    options = {name: found[name] for name in YARN if found[name] is not None}
    if "attention_factor" not in options and scale and all_dims and factor > 1:
        grown = math.log(factor) / 10
        options["attention_factor"] = (scale * grown + 1) / (all_dims * grown + 1)
    return {"name": "yarn"} | options


def _llama3(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "llama3", "low": found["low_freq_factor"], "high": found["high_freq_factor"]}


def _longrope(found: Mapping[str, Any]) -> dict[str, Any]:
    short, gain = found["short_factor"], found["attention_factor"]
    options = {"lambdas": found["long_factor"]}
    options |= {} if short == found["long_factor"] else {"short": short}
    return {"name": "longrope"} | options | ({} if gain is None else {"attention_factor": gain})


ORIGINAL = "original_max_position_embeddings"
NUMBER, FACTORS = between(0, LARGEST_SCALE), each(above_zero(LEAST, LARGEST))
_RULES = {
    "factor": above_zero(1, LARGEST_SCALE),
    ORIGINAL: whole(2, FARTHEST),
    "attention_factor": NUMBER,
    "beta_fast": NUMBER,
    "beta_slow": NUMBER,
    "alpha": above_zero(LEAST, LARGEST),
    "mscale": NUMBER,
    "mscale_all_dim": NUMBER,
    "truncate": true_or_false,
    "low_freq_factor": NUMBER,
    "high_freq_factor": NUMBER,
    "short_factor": FACTORS,
    "long_factor": FACTORS,
}
Type = tuple[Sequence[str], Sequence[str], Callable[[Mapping[str, Any]], dict[str, Any]]]
# The keys that a type needs, those that it may have, and their extension.
_TYPES: Mapping[str, Type] = {
    "default": ([], [], _plain),
    "linear": (["factor"], [], _linear),
    "dynamic": (["factor"], ["alpha"], _dynamic),
    "yarn": (["factor"], [ORIGINAL, *YARN, "mscale", "mscale_all_dim"], _yarn),
    "llama3": (["factor", "low_freq_factor", "high_freq_factor"], [ORIGINAL], _llama3),
    "longrope": (
        ["short_factor", "long_factor"],
        ["factor", ORIGINAL, "attention_factor"],
        _longrope,
    ),
}
