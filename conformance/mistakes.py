"""What is probably wrong with a function: a known mistake that gives the same numbers."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from conformance.checking import Result, argument, compared, sets
from conformance.reading import FULL, LONGEST, ORIGINAL, settings
from conformance.reference import bias, distances, scales
from conformance.reference import frequencies as freq
from conformance.reference import rotation as turn
from conformance.reference.shipped import _numbers


def explain(subject: str, failed: list[Result]) -> list[str]:
    """Return a sentence for each wrong output that a known mistake explains in most cases."""
    sentences = []
    for output in failed[0].case.outputs:
        results = [result for result in failed if output in result.wrong and not result.failure]
        best, most = "", 0
        for sentence, mistaken in _known(subject, output, results):
            explained = sum(_gives(result, output, mistaken) for result in results)
            if explained > most:
                best, most = sentence, explained
            if most == len(results):
                break
        if 2 * most > len(results):
            share = "" if most == len(results) else f" (explains {most} of {len(results)} cases)"
            sentences.append(f"{output}: {best}{share}")
    return sentences


def _gives(result: Result, output: str, mistaken: Callable[[Result], np.ndarray]) -> bool:
    expected = result.case.outputs[output]
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(mistaken(result), np.float64)
    except (KeyError, TypeError, ValueError):  # the case has no such setting
        return False
    if values.shape != expected.shape:
        return False
    values = np.where(np.isnan(expected), np.nan, np.nan_to_num(values))
    case = dataclasses.replace(result.case, outputs={output: values})
    return compared(case, {output: result.got[output]}).passes


def _known(
    subject: str, output: str, results: list[Result]
) -> Iterator[tuple[str, Callable[[Result], np.ndarray]]]:
    for sentence, function in BY_OUTPUT.get((subject, output), {}).items():
        yield sentence, _called(function)
    if subject == "configuration":
        for chosen in sets(FLAWS, 2):
            sentence = "; and ".join(FLAWS[name].sentence for name in chosen)
            yield sentence, _called(lambda chosen=chosen, **given: misread(chosen, **given)[output])
    if output == "inv_freq" and subject in ("yarn", "ntk_by_parts"):
        for chosen in sets(RAMP, 3):
            sentence = "; and ".join(RAMP[name] for name in chosen)
            yield sentence, _called(lambda chosen=chosen, **inputs: ramped(chosen, **inputs))
    yield "the sign is reversed", lambda result: -result.case.outputs[output]
    if output == "inv_freq":
        yield (
            "these are wavelengths, 2 pi / frequency",
            lambda r: 2 * np.pi / r.case.outputs[output],
        )
        yield "these are periods, 1 / frequency", lambda r: 1 / r.case.outputs[output]
    if not results or not results[0].case.outputs[output].ndim:
        return
    yield (
        "the last axis is in the reverse order",
        (lambda result: result.case.outputs[output][..., ::-1]),
    )
    factors = [_factor(result, output) for result in results]
    if all(factors):
        listed = ", ".join(dict.fromkeys(f"{factor:.4g}" for factor in factors))
        sentence = f"in each case all numbers have one wrong factor: {listed}"
        yield sentence, lambda r: r.case.outputs[output] * _factor(r, output)
    yield (
        "numbers have bfloat16's precision: compute in float32",
        (lambda result: _close(result, output)),
    )


def _called(function: Callable) -> Callable[[Result], np.ndarray]:
    return lambda result: function(
        **{name: argument(value) for name, value in result.case.inputs.items()}
    )


def _factor(result: Result, output: str) -> float:
    """The factor by which the expected numbers fit those got best."""
    expected = result.case.outputs[output]
    got, seen = result.got[output].reshape(expected.shape), ~np.isnan(expected)
    return float(np.sum(got[seen] * expected[seen]) / np.sum(expected[seen] ** 2))


def _close(result: Result, output: str) -> np.ndarray:
    """The numbers got, where they are within bfloat16's rounding, else the expected ones."""
    expected = result.case.outputs[output]
    got = result.got[output].reshape(expected.shape)
    return np.where(np.abs(got - expected) <= 2.0**-8 * np.abs(expected), got, expected)


# YaRN's ramp: up to three of these are found together

RAMP = {
    "reversed": "the ramp is reversed: fast pairs are divided by s and slow ones kept",
    "no rounding": "the ends of the ramp are not rounded outwards (truncate=True)",
    "rounding": "the ends of the ramp are rounded where truncate=False",
    "half": "the ends of the ramp are computed from half of the rotary dims",
    "dims": "the 2 in 2 ln(base) is missing, so the ends of the ramp are in dims, not in pairs",
    "nearest": "the ends of the ramp are rounded to the nearest pair",
    "entries": "the ramp runs over entries 0, 2, 4, ... in place of pairs 0, 1, 2, ...",
    "clamped": "the end of the ramp is clamped to R/2 - 1 in place of R - 1",
    "twice": "all frequencies are divided by s once more, as where positions are scaled too",
    "extended": "L is the extended length s L",
    "radians": "2 pi is missing in the number of turns",
    "base": "the ends of the ramp are those of the base 10,000 whatever the base",
    "turns": "the ramp runs over turns, as in the paper's text (ramp='rotations')",
    "wavelengths": "the ramp runs over wavelengths",
    "all": "all pairs are divided by s, as in pi",
    "none": "no pair is divided",
}


def ramped(
    chosen, *, head_dim, base, train_length, scale, beta_fast, beta_slow, truncate, ramp, **_
):
    """YaRN's frequencies with the chosen mistakes, for ramp='dims'."""
    if ramp != "dims":
        return np.nan
    pair, theta = np.arange(head_dim // 2), freq.abf(head_dim, base)
    length = train_length * scale if "extended" in chosen else train_length
    turns = length * theta / (2 * math.pi)
    rotary = head_dim // 2 if "half" in chosen else head_dim
    rotary *= 2 if "dims" in chosen else 1
    log_base = math.log(10_000 if "base" in chosen else base)
    low, high = (
        rotary * math.log(length / n / (1 if "radians" in chosen else 2 * math.pi)) / (2 * log_base)
        for n in (beta_fast, beta_slow)
    )
    if "nearest" in chosen:
        low, high = round(low), round(high)
    elif "rounding" in chosen or (truncate and "no rounding" not in chosen):
        low, high = math.floor(low), math.ceil(high)
    low = max(low, 0)
    high = min(high, (head_dim // 2 if "clamped" in chosen else head_dim) - 1)
    high += 0.001 if low == high else 0
    slowness = np.clip(((2 if "entries" in chosen else 1) * pair - low) / (high - low), 0, 1)
    if "turns" in chosen:
        slowness = 1 - np.clip((turns - beta_slow) / (beta_fast - beta_slow), 0, 1)
    if "wavelengths" in chosen:
        slowness = np.clip((1 / turns - 1 / beta_fast) / (1 / beta_slow - 1 / beta_fast), 0, 1)
    if "all" in chosen or "none" in chosen:
        slowness = np.full(len(pair), float("all" in chosen))
    if "reversed" in chosen:
        slowness = 1 - slowness
    return theta * (1 - slowness + slowness / scale) / (scale if "twice" in chosen else 1)


# How a configuration is misread: up to two of these are found together


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


def _gain(change: Callable[[dict, float], float], kind: str = "yarn") -> Callable:
    return lambda rope, found: (
        {"attention_factor": change(rope, found["attention_factor"])}
        if rope["rope_type"] == kind
        else {}
    )


def _grown(scale: float, coefficient: float = 1.0) -> float:
    return 0.1 * coefficient * math.log(scale) + 1 if scale > 1 else 1.0


def _given(rope: dict) -> bool:
    return rope.get("attention_factor") is not None


def _without(*keys: str) -> Callable[[dict], dict]:
    return lambda rope: {name: value for name, value in rope.items() if name not in keys}


def _shrunk(rope, found):
    if rope["rope_type"] != "dynamic" or not rope["length"]:
        return {}
    scale = rope["factor"] * rope["length"] / rope[LONGEST] - (rope["factor"] - 1)
    return {"inv_freq": freq.ntk(rope["rotary_dims"], float(rope["rope_theta"]), scale)}


FLAWS = {
    "attention_factor": Flaw("`attention_factor` is ignored", _without("attention_factor")),
    "truncate": Flaw("`truncate` is ignored", _without("truncate")),
    "mscale": Flaw("`mscale` and `mscale_all_dim` are ignored", _without("mscale")),
    "betas": Flaw("`beta_fast` and `beta_slow` are ignored", _without("beta_fast", "beta_slow")),
    "swapped": Flaw(
        "`beta_fast` and `beta_slow` are swapped",
        lambda x: x | {"beta_fast": x.get("beta_slow", 1), "beta_slow": x.get("beta_fast", 32)},
    ),
    "missing": Flaw("the attention factor is missing", numbers=_gain(lambda x, gain: 1.0)),
    "squared": Flaw(
        "the attention factor is multiplied by itself", numbers=_gain(lambda x, gain: gain**2)
    ),
    "both": Flaw(
        "a given `attention_factor` is multiplied by YaRN's own",
        numbers=_gain(lambda x, gain: gain * (_grown(x["factor"]) if _given(x) else 1)),
    ),
    "log twice": Flaw(
        "a given `attention_factor` takes the place of 1 in 0.1 x 1 ln s + 1",
        numbers=_gain(lambda x, gain: _grown(x["factor"], gain) if _given(x) else gain),
    ),
    "0.07": Flaw(
        "the coefficient is 0.07, as in TeleChat3, not 0.1",
        numbers=_gain(lambda x, gain: gain if _given(x) else _grown(x["factor"], 0.7)),
    ),
    "log2": Flaw(
        "the logarithm has base 2",
        numbers=_gain(lambda x, gain: gain if _given(x) else _grown(x["factor"], 1 / math.log(2))),
    ),
    **{name: Flaw(RAMP[name], numbers=_ramp(name)) for name in ("reversed", "clamped", "half")},
    "longest": Flaw(f"L is `{LONGEST}`", lambda x: x | {ORIGINAL: x[LONGEST]}),
    "static": Flaw(
        "dynamic NTK has one base, that of the longest row",
        lambda x: x | {"length": int(x["factor"] * x[LONGEST])},
    ),
    "shrinks": Flaw("the base of dynamic NTK shrinks below L", numbers=_shrunk),
    "list": Flaw(
        "the short list is used at every length",
        lambda x: x | {"long_factor": x.get("short_factor")},
    ),
    "gain": Flaw(
        "the attention factor of LongRoPE is missing",
        numbers=_gain(lambda x, gain: 1.0, "longrope"),
    ),
    "logits": Flaw(
        "the factor on logits of latent attention is missing",
        numbers=lambda x, found: {"logit_factor": 1.0},
    ),
    "kinds": Flaw("layers with windows have the settings of the others"),
    "part": Flaw(
        "`partial_rotary_factor` is ignored",
        lambda x: x | {"rotary_dims": int(x["rotary_dims"] / x["partial_rotary_factor"])},
    ),
    "plain": Flaw("the rope type is not applied", lambda x: x | {"rope_type": "default"}),
    "linear": Flaw("the rope type is read as linear", lambda x: x | {"rope_type": "linear"}),
}


# The others: by subject and output, functions of the subject's arguments


def _with(function: Callable, **changes) -> Callable:
    """The function with changed arguments: constants, or functions of all arguments."""

    def changed(**inputs):
        new = {name: value(inputs) if callable(value) else value for name, value in changes.items()}
        return function(**inputs | new)

    return changed


def _then(function: Callable, change: Callable) -> Callable:
    """The function with its output changed, given all arguments."""
    return lambda **inputs: change(function(**inputs), inputs)


def _log_factor(factor: Callable[[float], float]) -> Callable:
    return lambda scale, **_: factor(math.log(scale))


def _halves(embedding, _):
    return np.concatenate([embedding[:, 0::2], embedding[:, 1::2]], axis=1)


def _tensor2tensor(positions, width):
    pairs = width // 2
    angle = np.multiply.outer(positions, 1e4 ** (-np.arange(pairs) / max(pairs - 1, 1)))
    return np.concatenate([np.sin(angle), np.cos(angle), np.zeros_like(angle)], axis=1)[:, :width]


def _bucket_past_edges(distance, num_buckets, max_distance):
    """A distance that is an edge in whole numbers falls into the bucket below."""
    half = num_buckets // 2

    def is_edge(d):
        return any(d**half * half**j == max_distance**j * half**half for j in range(1, half))

    buckets = bias.t5_bucket(distance, num_buckets, max_distance)
    return buckets - [is_edge(int(d)) for d in distance]


def _self_extend(remapped: Callable, wider: int = 0) -> Callable:
    return lambda length, window, group, **_: distances._table(
        length, lambda i, j: i - j if i - j < window + wider else remapped(i, j, window, group)
    )


def _held(change: Callable[[int, int, int], int]) -> Callable:
    """Keys whose frequencies are those of some tokens, by key, length of the prompt, and read."""

    def logits(q, k, base, train_length, prompt, lambdas=None, short=None):
        q, k = np.asarray(q, np.float64)[:, None], np.asarray(k, np.float64)[:, None]
        out = np.full((len(q) - prompt, len(q)), np.nan)
        for row, read in enumerate(range(prompt + 1, len(q) + 1)):
            inv_freq = [
                turn._frequencies(
                    q.shape[-1], base, train_length, change(key, prompt, read), lambdas, short
                )
                for key in range(read)
            ]
            out[row, :read] = turn._logits(q, k, np.stack(inv_freq), read)
        return out

    return logits


BY_OUTPUT: dict[tuple[str, str], dict[str, Callable]] = {
    ("yarn", "attention_factor"): {
        "the attention factor is missing": _log_factor(lambda log: 1.0),
        "it is squared, as logits should be; it multiplies cos and sin": _log_factor(
            lambda log: (0.1 * log + 1) ** 2
        ),
        "it is the square root, sqrt(0.1 ln s + 1)": _log_factor(
            lambda log: (0.1 * log + 1) ** 0.5
        ),
        "it is the inverse": _log_factor(lambda log: 1 / (0.1 * log + 1)),
        "1 is not added to 0.1 ln s": _log_factor(lambda log: 0.1 * log),
        "the logarithm has base 10": _log_factor(lambda log: 0.1 * log / math.log(10) + 1),
        "the logarithm has base 2": _log_factor(lambda log: 0.1 * log / math.log(2) + 1),
        "the coefficient is 0.07, as in TeleChat3, not 0.1": _log_factor(
            lambda log: 0.07 * log + 1
        ),
        "a given factor is ignored": _then(
            _with(freq.yarn, attention_factor=None), lambda out, _: out["attention_factor"]
        ),
    },
    ("pi", "inv_freq"): {
        "frequencies are multiplied by s": _with(freq.pi, scale=lambda x: 1 / x["scale"]),
        "frequencies are not divided": _with(freq.pi, scale=1),
    },
    ("ntk", "inv_freq"): {
        "the base becomes base s, without the exponent R/(R-2)": lambda base, scale, **x: freq.abf(
            x["head_dim"], base * scale
        ),
        "all frequencies are divided by s, as in pi": lambda head_dim, base, scale, **_: freq.pi(
            head_dim, base, scale
        ),
    },
    ("dynamic_ntk", "inv_freq"): {
        "s falls below 1 where the length is below L": lambda length, train_length, **x: freq.ntk(
            scale=length / train_length, **x
        ),
        "s is a power of two, as in stepped_ntk": freq.stepped_ntk,
        "the base does not change": _with(freq.dynamic_ntk, length=1),
    },
    ("llama3", "inv_freq"): {
        "`low` and `high` are swapped, or there is no ramp between them": _with(
            freq.llama3, low=lambda x: x["high"], high=lambda x: x["low"]
        ),
        "L is the extended length s L": _with(
            freq.llama3, train_length=lambda x: x["train_length"] * x["scale"]
        ),
        "all frequencies are divided by s, as in pi": lambda head_dim, base, scale, **_: freq.pi(
            head_dim, base, scale
        ),
    },
    ("rope", "rotated"): {
        "pairs are those of the other layout": _with(
            turn.rope,
            layout=lambda x: "half" if x["layout"] == "interleaved" else "interleaved",
        ),
        "it turns the other way": _with(turn.rope, positions=lambda x: -x["positions"]),
        "positions start at 1": _with(turn.rope, positions=lambda x: x["positions"] + 1),
        "the whole head is rotated, whatever the fraction": _with(turn.rope, fraction=1.0),
        "the base is 10,000, whatever the base": _with(turn.rope, base=10_000.0),
    },
    ("sinusoidal", "embedding"): {
        "all sines come first, then all cosines": _then(turn.sinusoidal, _halves),
        "all sines come first, then all cosines, over D/2 - 1 (tensor2tensor)": _tensor2tensor,
        "sines and cosines are swapped": _then(
            turn.sinusoidal, lambda out, x: out[:, np.arange(x["width"] // 2 * 2) ^ 1]
        ),
    },
    ("alibi_slopes", "slopes"): {
        "they are 2^(-8i/H) where H is no power of two": lambda heads: (
            2.0 ** (-8 * np.arange(1, heads + 1) / heads)
        ),
        "exponents start at 0 in place of 8/H": lambda heads: (
            2.0 ** (-8 * np.arange(heads) / heads)
        ),
        "they are the first of the next power of two": lambda heads: bias.alibi_slopes(
            2 ** math.ceil(math.log2(heads))
        )[:heads],
        "they are sorted": lambda heads: np.sort(bias.alibi_slopes(heads))[::-1],
    },
    ("alibi", "bias"): {
        "it is slope k: rows differ by a constant, which the softmax cancels": _then(
            bias.alibi,
            lambda _, x: (
                bias.alibi_slopes(x["heads"])[:, None, None]
                * np.broadcast_to(np.arange(x["length"]), (1, x["length"], x["length"]))
            ),
        ),
    },
    ("t5_bucket", "bucket"): {
        "they are those of an encoder (both directions)": _with(
            bias.t5_bucket, num_buckets=lambda x: x["num_buckets"] // 2
        ),
        "the logarithm is rounded down at whole-number edges": _bucket_past_edges,
        "a distance is query less key; yours has the other sign": _with(
            bias.t5_bucket, distance=lambda x: 0 * x["distance"]
        ),
    },
    ("self_extend", "distance"): {
        "window / group is rounded as in the paper, or not as in its code: the other way": _with(
            distances.self_extend, floor=lambda x: not x["floor"]
        ),
        "a distance equal to the window is kept; only those below it are": _self_extend(
            lambda i, j, window, group: i // group - j // group + window - window // group, wider=1
        ),
        "the shift window - window // group is missing": _self_extend(
            lambda i, j, window, group: i // group - j // group
        ),
        "(i - j) // group takes the place of i // group - j // group": _self_extend(
            lambda i, j, window, group: (i - j) // group + window - window // group
        ),
    },
    ("stale", "logits"): {
        "cached keys keep the frequencies of the length at which they were read": _held(
            lambda key, prompt, read: max(key + 1, prompt)
        ),
        "the frequencies are those of the prompt's length at every token": _held(
            lambda key, prompt, read: prompt
        ),
    },
    ("logn", "scale"): {
        "the query's own key is not counted: ln p in place of ln(p + 1)": _with(
            scales.logn, positions=lambda x: np.maximum(x["positions"] - 1, 0)
        ),
        "the factor falls below 1": lambda positions, train_length: (
            np.log(positions + 1) / math.log(train_length)
        ),
    },
}
