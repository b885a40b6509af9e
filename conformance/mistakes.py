"""What is probably wrong with a function: a known mistake that gives the same numbers."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from conformance.checking import Result, argument, compared, sets
from conformance.misreading import FLAWS, divided_alike, misread
from conformance.reference import bias, distances, scales
from conformance.reference import frequencies as freq
from conformance.reference import rotation as turn
from conformance.wrong_yarn import GAINS, RAMP, ramped


def explain(subject: str, results: list[Result]) -> list[str]:
    """Return a sentence for each wrong output that a known mistake explains in most cases."""
    called = [r for r in results if r.got and not (r.convention and r.passes)]
    if subject == "configuration":
        return _flaws_of(called)
    sentences = []
    for output in called[0].case.outputs if called else ():
        seen = [result for result in called if output in result.got and not result.failure]
        wrong = [result for result in seen if output in result.wrong]
        known = (
            (sentence, lambda result, mistaken=mistaken: {output: mistaken(result)})  # noqa: B023
            for sentence, mistaken in _known(subject, output, wrong)
        )
        best = _best([(result, output in result.wrong) for result in seen], known)
        sentences += [f"{output}: {best}"] if best else []
    return sentences


def _flaws_of(called: list[Result]) -> list[str]:
    """One or two flaws that give all outputs of the wrong cases and break no right one, else
    several that do so of some cases each."""
    wrong = {index for index, result in enumerate(called) if not result.passes}
    right, covered = [result for result in called if result.passes], {}
    for chosen in sets(FLAWS, 2) if wrong else ():
        outputs = _of_flaws(chosen)
        if any(_gives(result, outputs) is False for result in right):
            continue
        covered[chosen] = {index for index in wrong if _gives(called[index], outputs)}
        if covered[chosen] == wrong:
            return [_joined(FLAWS[name].sentence for name in chosen)]
    left, sentences = set(wrong), []
    while left and covered:
        chosen = max(covered, key=lambda each: (len(covered[each] & left), -len(each)))
        if not covered[chosen] & left:
            break
        left -= covered[chosen]
        share = f" (explains {len(covered[chosen])} of {len(wrong)} cases)"
        sentences.append(_joined(FLAWS[name].sentence for name in chosen) + share)
        covered = {flaws: cases for flaws, cases in covered.items() if len(flaws) == 1}
    return sentences


def _best(results: list[tuple[Result, bool]], known) -> str:
    """The mistake that gives the numbers of most wrong results, and is in none that is right."""
    wrong = sum(is_wrong for _, is_wrong in results)
    best, most = "", 0
    for sentence, mistaken in known if wrong else ():
        explained = 0
        for result, is_wrong in results:
            gives = _gives(result, mistaken)
            if gives is False and not is_wrong:
                explained = 0
                break
            explained += gives is True and is_wrong
        if explained > most:
            best, most = sentence, explained
        if most == wrong:
            break
    if 2 * most <= wrong:
        return ""
    return best + ("" if most == wrong else f" (explains {most} of {wrong} cases)")


def _gives(result: Result, mistaken: Callable[[Result], dict]) -> bool | None:
    """Whether a mistake gives the numbers got; None: it says nothing of this case."""
    values = {}
    try:
        with np.errstate(all="ignore"):
            for name, value in mistaken(result).items():
                expected, value = result.case.outputs[name], np.asarray(value, np.float64)
                if np.isnan(value).all():
                    return None
                if value.shape == expected.shape:
                    value = np.where(np.isnan(expected), np.nan, np.nan_to_num(value))
                values[name] = value
    except (KeyError, TypeError, ValueError):
        return None
    case = dataclasses.replace(result.case, outputs=result.case.outputs | values)
    return compared(case, {name: result.got[name] for name in values if name in result.got}).passes


def _joined(sentences) -> str:
    return "; and ".join(sentences)


def _known(
    subject: str, output: str, results: list[Result]
) -> Iterator[tuple[str, Callable[[Result], np.ndarray]]]:
    for sentence, function in BY_OUTPUT.get((subject, output), {}).items():
        yield sentence, _called(function)
    if output == "inv_freq" and subject in ("yarn", "ntk_by_parts"):
        for chosen in sets(RAMP, 3):
            sentence = _joined(RAMP[name] for name in chosen)
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

    def scaled(result):
        return result.case.outputs[output] * _factor(result, output)

    fits = [result for result in results if _gives(result, lambda r: {output: scaled(r)})]
    listed = ", ".join(dict.fromkeys(f"{_factor(result, output):.4g}" for result in fits))
    if fits and all(_factor(result, output) for result in fits):
        yield f"in each case all numbers have one wrong factor: {listed}", scaled
    for kind, bits in (("bfloat16", 8), ("float16", 11)):
        yield (
            f"numbers have {kind}'s precision: compute in float32",
            lambda result, bits=bits: _rounded(result, output, bits),
        )


def _of_flaws(flaws) -> Callable[[Result], dict]:
    def outputs(result):
        found = misread(flaws, **result.case.inputs)
        return {name: found[name] for name in result.case.outputs}

    return outputs


def _called(function: Callable) -> Callable[[Result], np.ndarray]:
    return lambda result: function(
        **{name: argument(value) for name, value in result.case.inputs.items()}
    )


def _factor(result: Result, output: str) -> float:
    """The factor by which the expected numbers fit those got best."""
    expected = result.case.outputs[output]
    got, seen = result.got[output].reshape(expected.shape), ~np.isnan(expected)
    return float(np.sum(got[seen] * expected[seen]) / np.sum(expected[seen] ** 2))


def _rounded(result: Result, output: str, bits: int) -> np.ndarray:
    """The numbers got, where they are close and have no more bits, else the expected ones."""
    expected = result.case.outputs[output]
    got = result.got[output].reshape(expected.shape)
    mantissa, exponent = np.frexp(got)
    short = np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent) == got
    return np.where(
        short & (np.abs(got - expected) <= 2.0 ** (1 - bits) * abs(expected)), got, expected
    )


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


def _output(function: Callable, output: str, **changes) -> Callable:
    return _then(_with(function, **changes), lambda out, _: out[output])


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


def _as_pi(head_dim, base, scale, **_):
    return freq.pi(head_dim, base, scale)


BY_OUTPUT: dict[tuple[str, str], dict[str, Callable]] = {
    ("yarn", "attention_factor"): {
        sentence: _then(
            freq.yarn,
            lambda out, x, gain=gain: gain(
                x["scale"], out["attention_factor"], x["attention_factor"]
            ),
        )
        for sentence, gain in GAINS.values()
    },
    ("pi", "inv_freq"): {
        "frequencies are multiplied by s": _with(freq.pi, scale=lambda x: 1 / x["scale"]),
        "frequencies are not divided": _with(freq.pi, scale=1),
    },
    ("ntk", "inv_freq"): {
        "the base becomes base s, without the exponent R/(R-2)": lambda base, scale, **x: freq.abf(
            x["head_dim"], base * scale
        ),
        "all frequencies are divided by s, as in pi": _as_pi,
    },
    ("dynamic_ntk", "inv_freq"): {
        "s falls below 1 where the length is below L": lambda length, train_length, **x: freq.ntk(
            scale=length / train_length, **x
        ),
        "s is a power of two, as in stepped_ntk": freq.stepped_ntk,
        "the base does not change": _with(freq.dynamic_ntk, length=1),
        "all frequencies are divided by s^(R/(R-2)), by which the base should grow": (
            lambda head_dim, base, train_length, length: divided_alike(
                head_dim, base, max(1, length / train_length)
            )
        ),
    },
    ("longrope", "inv_freq"): {
        "the long list is used at every length": _output(freq.longrope, "inv_freq", short=None),
        "the short list is used at every length": _output(freq.longrope, "inv_freq", length=1),
        "the long list begins at L + 2 tokens, not at L + 1": _output(
            freq.longrope, "inv_freq", length=lambda x: (x["length"] or 1) - 1
        ),
    },
    ("longrope", "attention_factor"): {
        "a given factor is ignored": _output(
            freq.longrope, "attention_factor", attention_factor=None
        ),
    },
    ("llama3", "inv_freq"): {
        "`low` and `high` are swapped, or there is no ramp between them": _with(
            freq.llama3, low=lambda x: x["high"], high=lambda x: x["low"]
        ),
        "L is the extended length s L": _with(
            freq.llama3, train_length=lambda x: x["train_length"] * x["scale"]
        ),
        "all frequencies are divided by s, as in pi": _as_pi,
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
        "cached keys keep the frequencies of the length at which they were read": partial(
            turn._decoded, lambda key, prompt, read: max(key + 1, prompt)
        ),
        "the frequencies are those of the prompt's length at every token": partial(
            turn._decoded, lambda key, prompt, read: prompt
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
