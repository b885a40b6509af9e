"""The rotary settings of a config.json, in each of the three spellings that the Hub has."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Rope(NamedTuple):
    """Rotary settings in our terms."""

    base: float
    fraction: float
    kind: str  # the rope type as the file states it
    factor: float
    original: int | None  # L of the formulas; None: the model's longest length
    extension: dict[str, Any]  # fields of `extension`; empty: none


def rope_of(config: Mapping[str, Any], base: float) -> Rope:
    """`rope_parameters`, or `rope_scaling` beside `rope_theta`; `base` is the family's default.

    A ValueError names settings that have no form here.
    """
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    nested = [name for name, value in given.items() if isinstance(value, Mapping)]
    if nested:
        raise ValueError(f"rotary settings per kind of layer are not supported: {nested}")
    kind = given.get("rope_type") or given.get("type") or "default"
    theta = _first(given, config, "rope_theta", "rotary_emb_base", default=base)
    fraction = _first(given, config, "partial_rotary_factor", "rotary_pct", default=1.0)
    if kind not in _EXTENSIONS:
        known = ", ".join(_EXTENSIONS)
        raise ValueError(f"rope type {kind!r} is not supported; those that are: {known}")
    longest = config.get("max_position_embeddings")
    original = config.get("original_max_position_embeddings") or given.get(
        "original_max_position_embeddings"
    )
    factor = given.get("factor")
    if factor is None:
        factor = longest / original if longest and original else 1.0
    try:
        extension = _EXTENSIONS[kind](given, float(factor))
    except KeyError as error:
        raise ValueError(f"rope type {kind!r} needs {error.args[0]}") from error
    scaled = {"scale": float(factor)} | extension if extension else {}
    return Rope(float(theta), float(fraction), kind, float(factor), original, scaled)


def _first(given: Mapping, config: Mapping, *names: str, default: float) -> float:
    """The first of these that is stated, by the settings themselves or beside them."""
    stated = (place.get(name) for place in (given, config) for name in names)
    return next((value for value in stated if value is not None), default)


def _default(given: Mapping, factor: float) -> dict[str, Any]:
    return {}


def _linear(given: Mapping, factor: float) -> dict[str, Any]:
    return {"name": "pi"}


def _dynamic(given: Mapping, factor: float) -> dict[str, Any]:
    """Within L it is plain RoPE; beyond, the extension `dynamic_ntk` if its factor is 1."""
    if factor != 1:
        raise ValueError(
            f"rope type 'dynamic' with factor {factor:g} is not dynamic_ntk, whose factor is 1: "
            "write factor 1 to adopt the model as it is within its length"
        )
    return {}


def _yarn(given: Mapping, factor: float) -> dict[str, Any]:
    gain, scale, all_dims = (
        given.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim")
    )
    if gain is None and scale and all_dims and factor > 1:
        grown = math.log(factor) / 10
        gain = (scale * grown + 1) / (all_dims * grown + 1)
    options = {
        "beta_fast": given.get("beta_fast"),
        "beta_slow": given.get("beta_slow"),
        "truncate": given.get("truncate"),
        "attention_factor": gain,
    }
    numbers = {
        n: v if isinstance(v, bool) else float(v) for n, v in options.items() if v is not None
    }
    return {"name": "yarn"} | numbers


def _llama3(given: Mapping, factor: float) -> dict[str, Any]:
    low, high = float(given["low_freq_factor"]), float(given["high_freq_factor"])
    return {"name": "llama3", "low": low, "high": high}


def _longrope(given: Mapping, factor: float) -> dict[str, Any]:
    short, long = given["short_factor"], given["long_factor"]
    if list(short) != list(long):
        raise ValueError(
            "rope type 'longrope' whose short_factor and long_factor differ changes its numbers "
            "with the length read, which is not supported"
        )
    options = {"lambdas": [float(value) for value in long]}
    gain = given.get("attention_factor")
    return {"name": "longrope"} | options | ({} if gain is None else {"attention_factor": gain})


_EXTENSIONS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
}
