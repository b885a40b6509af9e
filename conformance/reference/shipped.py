"""What a shipped config.json gives a layer, read as transformers 5 and the model's own code do."""

import math

from conformance.reading import FULL, LONGEST, ORIGINAL, PART, settings
from conformance.reference import frequencies as freq

TURNS = "the ramp counts turns, as in the paper's text; shipped code counts pairs"


def configuration(config, length=None, layer_type=FULL):
    """The rotary settings of a config.json, as files ship them: frequencies [R/2], the factor on
    cos and sin, and a further factor on logits.

    `config` is the rotary part of the file: rope_theta and rope_scaling, or rope_parameters, which
    may be given by kind of layer, and what stands beside them. `length` is the tokens read, which
    dynamic NTK and LongRoPE need; None: at most L. Where makers differ, a case names each
    convention and who follows it, and any of them passes.
    """
    return _numbers(settings(config, layer_type), length)


def _numbers(rope, length=None):
    kind, factor, longest = rope["rope_type"], rope["factor"], rope[LONGEST]
    shape = {"head_dim": rope["rotary_dims"], "base": float(rope["rope_theta"])}
    trained = shape | {"train_length": rope[ORIGINAL], "scale": factor}
    gain, on_logits, conventions = 1.0, 1.0, {}
    if kind == "default":
        inv_freq = freq.abf(**shape)
    elif kind == "linear":
        inv_freq = freq.pi(**shape, scale=factor)
    elif kind == "proportional":
        inv_freq = freq.drop(**shape, train_length=longest, keep=rope[PART]) / factor
    elif kind == "dynamic":
        scale = rope.get("alpha") or factor * max(length or 0, longest) / longest - (factor - 1)
        inv_freq = freq.ntk(**shape, scale=scale)
    elif kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        inv_freq = freq.llama3(**trained, low=low, high=high)
    elif kind == "longrope":
        lists = {"lambdas": rope["long_factor"], "short": rope["short_factor"]}
        given = {"attention_factor": rope.get("attention_factor"), "length": length or 0}
        inv_freq, gain = freq.longrope(**trained, **lists, **given).values()
    else:
        given = _betas(rope)
        inv_freq = freq.ntk_by_parts(**trained, **given, truncate=rope.get("truncate", True))
        gain, on_logits, conventions = _factors(rope, factor)
        if given["beta_fast"] > given["beta_slow"]:
            turns = freq.ntk_by_parts(**trained, **given, ramp="rotations")
            conventions[TURNS] = {"inv_freq": turns}
    return {
        "inv_freq": inv_freq,
        "attention_factor": float(gain),
        "logit_factor": float(on_logits),
        "conventions": conventions,
    }


def _betas(rope):
    return {"beta_fast": rope.get("beta_fast") or 32, "beta_slow": rope.get("beta_slow") or 1}


def _factors(rope, scale):
    """YaRN's two factors, and what else they are by the convention of some maker."""

    def grown(coefficient):
        return 0.1 * coefficient * math.log(scale) + 1 if scale > 1 else 1.0

    over, under = rope.get("mscale"), rope.get("mscale_all_dim")
    gain, on_logits = grown(1), 1.0
    if over and under:  # DeepSeek; its logits have the other part
        gain = grown(over) / grown(under)
        on_logits = grown(under) ** 2 if rope["latent"] else 1.0
    gain = rope["attention_factor"] if rope.get("attention_factor") is not None else gain
    others = {}
    if "attn_factor" in rope:
        others[
            "`attn_factor` multiplies YaRN's factor in SGLang and llama.cpp; elsewhere it is no key"
        ] = {"attention_factor": grown(1) * rope["attn_factor"]}
    if on_logits == 1 and gain != 1:
        others["the factor is on the logits, squared, not on cos and sin, as in torchtitan"] = {
            "attention_factor": 1.0,
            "logit_factor": gain**2,
        }
    return gain, on_logits, others
