"""How a configuration is misread. Up to two of these flaws are found together."""

from collections.abc import Callable
from typing import NamedTuple

from conformance.reading import FULL, LONGEST, ORIGINAL, PART, settings
from conformance.reference import frequencies as freq
from conformance.reference.shipped import _numbers
from conformance.wrong_yarn import GAINS, RAMP, ramped


class Flaw(NamedTuple):
    """A mistake in the settings of a layer, or in the numbers that they give."""

    sentence: str
    settings: Callable[[dict], dict] = lambda rope: rope
    numbers: Callable[[dict, dict], dict] = lambda rope, found: {}


def misread(flaws, config, length=None, layer_type=FULL):
    """What a reader with these flaws makes of a configuration."""
    rope = settings(config, FULL if "kinds" in flaws else layer_type) | {"length": length}
    for name in flaws:
        rope = FLAWS[name].settings(rope)
    found = _numbers(rope, rope["length"])
    for name in flaws:
        found |= FLAWS[name].numbers(rope, found)
    return found


def _ramp(mistake: str) -> Callable[[dict, dict], dict]:
    def numbers(rope, found):
        if rope["rope_type"] != "yarn":
            return {}
        given = {
            "head_dim": rope["rotary_dims"],
            "base": float(rope["rope_theta"]),
            "train_length": rope[ORIGINAL],
            "scale": rope["factor"],
            "beta_fast": rope.get("beta_fast") or 32,
            "beta_slow": rope.get("beta_slow") or 1,
            "truncate": rope.get("truncate", True),
        }
        return {"inv_freq": ramped((mistake,), ramp="dims", **given)}

    return numbers


def _gain(name: str) -> Flaw:
    sentence, gain = GAINS[name]

    def numbers(rope, found):
        if rope["rope_type"] != "yarn":
            return {}
        given = rope.get("attention_factor")
        return {"attention_factor": gain(rope["factor"], found["attention_factor"], given)}

    return Flaw(sentence, numbers=numbers)


def _without(*keys: str) -> Callable[[dict], dict]:
    return lambda rope: {name: value for name, value in rope.items() if name not in keys}


def _shrunk(rope, found):
    if rope["rope_type"] != "dynamic" or rope.get("alpha") or not rope["length"]:
        return {}
    scale = rope["factor"] * rope["length"] / rope[LONGEST] - (rope["factor"] - 1)
    if scale <= 0:
        return {}
    return {"inv_freq": freq.ntk(rope["rotary_dims"], float(rope["rope_theta"]), scale)}


def _swapped(rope):
    return rope | {"beta_fast": rope.get("beta_slow", 1), "beta_slow": rope.get("beta_fast", 32)}


FLAWS = {
    "attention_factor": Flaw("`attention_factor` is ignored", _without("attention_factor")),
    "truncate": Flaw("`truncate` is ignored", _without("truncate")),
    "logits": Flaw(
        "the factor on logits of latent attention is missing",
        numbers=lambda rope, found: {"logit_factor": 1.0},
    ),
    "mscale": Flaw("`mscale` and `mscale_all_dim` are ignored", _without("mscale")),
    "betas": Flaw("`beta_fast` and `beta_slow` are ignored", _without("beta_fast", "beta_slow")),
    "swapped": Flaw("`beta_fast` and `beta_slow` are swapped", _swapped),
    **{name: _gain(name) for name in GAINS if name not in ("ignored", "root", "inverse", "no 1")},
    **{name: Flaw(RAMP[name], numbers=_ramp(name)) for name in ("reversed", "clamped", "half")},
    "short": Flaw(
        "the short list is used at every length",
        lambda rope: rope | {"long_factor": rope.get("short_factor")},
    ),
    "long": Flaw(
        "the long list is used at every length",
        lambda rope: rope | {"short_factor": rope.get("long_factor")},
    ),
    "gain": Flaw(
        "the attention factor of LongRoPE is missing",
        numbers=lambda rope, found: (
            {"attention_factor": 1.0} if rope["rope_type"] == "longrope" else {}
        ),
    ),
    "longest": Flaw(f"L is `{LONGEST}`", lambda rope: rope | {ORIGINAL: rope[LONGEST]}),
    "static": Flaw(
        "dynamic NTK has one base, that of the longest row",
        lambda rope: rope | {"length": int(rope["factor"] * rope[LONGEST])},
    ),
    "shrinks": Flaw("the base of dynamic NTK shrinks below L", numbers=_shrunk),
    "kinds": Flaw("layers with windows have the settings of the others"),
    "part": Flaw(
        f"`{PART}` is ignored",
        lambda rope: rope | {"rotary_dims": int(rope["rotary_dims"] / rope[PART])},
    ),
    "plain": Flaw("the rope type is not applied", lambda rope: rope | {"rope_type": "default"}),
    "linear": Flaw("the rope type is read as linear", lambda rope: rope | {"rope_type": "linear"}),
}
