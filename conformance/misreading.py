"""How a configuration is misread. Up to two of these flaws are found together."""

from collections.abc import Callable
from typing import NamedTuple

from conformance import reading
from conformance.reading import FULL, LONGEST, ORIGINAL, PART, by_kind, settings
from conformance.reference import frequencies as freq
from conformance.reference.shipped import _betas, _numbers
from conformance.wrong_yarn import GAINS, RAMP, ramped


class Refused(ValueError):
    """A reader with the flaw stops."""


class Flaw(NamedTuple):
    """A mistake in the settings of a layer, or in the numbers that they give."""

    sentence: str
    settings: Callable[[dict], dict] = lambda rope: rope
    numbers: Callable[[dict, dict], dict] = lambda rope, found: {}


def misread(flaws, config, length=None, layer_type=FULL):
    """What a reader with these flaws makes of a configuration."""
    rope = settings(config, FULL if "kinds" in flaws else layer_type)
    rope |= {"length": length, "layer_type": layer_type}
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
            "truncate": rope.get("truncate", True),
        }
        return {"inv_freq": ramped((mistake,), ramp="dims", **given, **_betas(rope))}

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


def divided_alike(head_dim, base, scale):
    """NTK whose factor of the base divides each frequency."""
    return freq.abf(head_dim, base) / scale ** (head_dim / (head_dim - 2))


def _dynamic(formula: Callable, least: float) -> Callable[[dict, dict], dict]:
    """Dynamic NTK by another formula, or by a factor that falls below 1."""

    def numbers(rope, found):
        if rope["rope_type"] != "dynamic" or rope.get("alpha") or not rope["length"]:
            return {}
        scale = rope["factor"] * rope["length"] / rope[LONGEST] - (rope["factor"] - 1)
        shape = rope["rotary_dims"], float(rope["rope_theta"])
        return {"inv_freq": formula(*shape, max(scale, least))}

    return numbers


def _of(kinds: str, change: Callable[[dict], dict]) -> Callable[[dict], dict]:
    """The change for some rope types."""
    return lambda rope: rope | change(rope) if rope["rope_type"] in kinds.split() else rope


def _refused(rope):
    if isinstance(rope["factor"], int):
        raise Refused("it stops at a factor without a point")
    return {}


def _gemma(rope):
    return {"rope_type": "default"} if rope["file"].get("model_type") == "gemma3_text" else {}


def _inside(rope):
    """L of the rope settings alone, with a default."""
    if rope["rope_type"] == "longrope" and ORIGINAL not in rope["given"]:
        raise Refused(f"it stops, as `{ORIGINAL}` is not among the rope settings")
    return {ORIGINAL: rope["given"].get(ORIGINAL, 4096)}


def _unspelled(rope):
    """Without `rope_parameters`, whose base is that of the class, too."""
    if "rope_parameters" not in rope["file"] or rope["file"].get("rope_scaling"):
        return rope
    own = reading.completed(rope["file"])
    theta = own.get("rope_theta", 10_000.0)
    if rope["layer_type"] == reading.SLIDING:
        theta = own.get(reading.LOCAL_BASE) or theta
    return rope | {"rope_type": "default", "rope_theta": theta}


FLAWS = {
    "attention_factor": Flaw("`attention_factor` is ignored", _without("attention_factor")),
    "truncate": Flaw("`truncate` is ignored", _without("truncate")),
    "logits": Flaw(
        "the factor on logits of latent attention is missing",
        numbers=lambda rope, found: {"logit_factor": 1.0},
    ),
    "mscale": Flaw("`mscale` and `mscale_all_dim` are ignored", _without("mscale")),
    "betas": Flaw("`beta_fast` and `beta_slow` are ignored", _without("beta_fast", "beta_slow")),
    "swapped": Flaw(
        "`beta_fast` and `beta_slow` are swapped",
        lambda x: x | {"beta_fast": x.get("beta_slow", 1), "beta_slow": x.get("beta_fast", 32)},
    ),
    **{name: _gain(name) for name in GAINS if name not in ("ignored", "root")},
    **{name: Flaw(RAMP[name], numbers=_ramp(name)) for name in ("reversed", "clamped", "half")},
    "short": Flaw(
        "the short list is used at every length",
        _of("longrope", lambda x: {"long_factor": x["short_factor"]}),
    ),
    "long": Flaw(
        "the long list is used at every length",
        _of("longrope", lambda x: {"short_factor": x["long_factor"]}),
    ),
    "late": Flaw(
        "the long list begins at L + 2 tokens, not at L + 1",
        _of("longrope", lambda x: {"length": (x["length"] or 1) - 1}),
    ),
    "gain": Flaw(
        "the attention factor of LongRoPE is missing",
        numbers=lambda x, _: {"attention_factor": 1.0} if x["rope_type"] == "longrope" else {},
    ),
    "given": Flaw(
        "`attention_factor` of LongRoPE is ignored",
        _of("longrope", lambda x: {"attention_factor": None}),
    ),
    "longest": Flaw(f"L is `{LONGEST}`", lambda x: x | {ORIGINAL: x[LONGEST]}),
    "inside": Flaw(
        f"L is `{ORIGINAL}` among the rope settings, else 4,096, never the one beside them",
        _of("yarn longrope", _inside),
    ),
    "inner": Flaw(
        f"`{ORIGINAL}` beside the rope settings is ignored",
        _of("yarn", lambda x: {ORIGINAL: x["given"].get(ORIGINAL) or x[LONGEST]}),
    ),
    "ratio": Flaw(
        f"`factor` is ignored: {LONGEST} / L takes its place",
        _of(
            "yarn",
            lambda x: {
                "factor": x[LONGEST] / x[ORIGINAL] if ORIGINAL in x["given"] else x["factor"]
            },
        ),
    ),
    "beside": Flaw(
        "`rope_theta` beside the rope settings wins over the one among them",
        lambda x: (
            x | {"rope_theta": x["file"].get("rope_theta", x["rope_theta"])}
            if by_kind(x["file"])
            else x
        ),
    ),
    "spelling": Flaw("`rope_parameters`, as transformers 5 spells it, is not read", _unspelled),
    "nested": Flaw(
        "`truncate` among the settings of a kind of layer is ignored",
        lambda x: x | {"truncate": True} if by_kind(x["file"]) else x,
    ),
    "gemma": Flaw("the factor 8 of Gemma 3's full layers is dropped", _of("linear", _gemma)),
    "gemma-5": Flaw(
        "Gemma 3's `rope_parameters` by kind of layer are not read",
        lambda x: _unspelled(x) if x["file"].get("model_type") == "gemma3_text" else x,
    ),
    "integer": Flaw("a factor without a point is refused", _of("linear", _refused)),
    "static": Flaw(
        "dynamic NTK has one base, that of the longest row",
        _of("dynamic", lambda x: {"length": int(x["factor"] * x[LONGEST])}),
    ),
    "frozen": Flaw(
        "dynamic NTK extends nothing: its base is that of L at every length",
        _of("dynamic", lambda x: {"length": None}),
    ),
    "shrinks": Flaw(
        "the base of dynamic NTK shrinks below L", numbers=_dynamic(freq.ntk, least=1e-3)
    ),
    "alike": Flaw(
        "dynamic NTK divides all frequencies alike", numbers=_dynamic(divided_alike, least=1.0)
    ),
    "kinds": Flaw("layers with windows have the settings of the others"),
    "part": Flaw(
        f"`{PART}` is ignored",
        lambda rope: rope | {"rotary_dims": int(rope["rotary_dims"] / rope[PART])},
    ),
    "plain": Flaw("the rope type is not applied", lambda rope: rope | {"rope_type": "default"}),
    "linear": Flaw("the rope type is read as linear", lambda rope: rope | {"rope_type": "linear"}),
}
