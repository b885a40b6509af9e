"""What a config.json says about rotary positions, what contradicts it, and who reads it right."""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from conformance import reading
from conformance.checking import Misuse
from conformance.misreading import FLAWS, Refused, misread
from conformance.reading import FULL, KEYS, LONGEST, ORIGINAL, SLIDING, settings, stated
from conformance.reference.shipped import _numbers


class Engine(NamedTuple):
    """What an engine that reads such files gets wrong, of what was run (libraries.json)."""

    name: str
    version: str
    flaws: str
    lacks: str = ""  # rope types
    not_run: str = ""  # model types, of those of RUN


ENGINES = {
    "transformers": Engine("transformers", "5.24.0", "nested"),
    "vllm": Engine("vLLM", "0.33.0", "given frozen integer", "", "olmo3 gemma4_text"),
    "sglang": Engine(
        "SGLang", "0.5.23", "attention_factor late static integer gemma", "", "gemma4_text"
    ),
    "mlx-lm": Engine("mlx-lm", "0.32.2", "truncate attention_factor long inside spelling"),
    "exllamav3": Engine(
        "ExLlamaV3",
        "1.6.5",
        "given ratio inner beside gemma-5",
        "dynamic",
        "deepseek_v2 gemma4_text internlm2 hunyuan_v1_dense",
    ),
}
WITHOUT = {  # model types of an engine that have none of a flaw
    ("SGLang", "attention_factor"): "laguna",
    ("mlx-lm", "inside"): "phi3",
    ("ExLlamaV3", "beside"): "gemma3_text",
    ("mlx-lm", "spelling"): "qwen3 ministral3 laguna gemma4_text mistral4 mellum olmo_hybrid "
    "exaone_moe glm_moe_dsa granitemoehybrid lfm2 lfm2_moe qwen3_5 qwen3_5_text spark2_5",
}

NUMBERS = {"rope_theta", "factor", LONGEST, ORIGINAL, "beta_fast", "beta_slow", "attention_factor"}
NUMBERS |= {"low_freq_factor", "high_freq_factor", "alpha", reading.PART, reading.LOCAL_BASE}
SIZES = {"head_dim", "hidden_size", "num_attention_heads", reading.LATENT, "rotary_dim"}
# Model types whose classes were run with their files; of others the rope settings are read alone.
RUN = "gpt_oss deepseek_v3 deepseek_v2 kimi_k2 ministral3 qwen3 qwen2 laguna olmo3 phi3 llama "
RUN += "gemma3_text gemma4_text glm4_moe internlm2 hunyuan_v1_dense"


def lint(path: str, engine: str | None = None) -> tuple[list[str], bool]:
    """The lines that a person reads, and whether the file, and the engine named, are right."""
    if engine and engine not in ENGINES:
        raise Misuse(f"unknown engine {engine!r}; those that were tested: {', '.join(ENGINES)}")
    try:
        return _linted(_read(path), engine)
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise Misuse(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _linted(config: dict[str, Any], engine: str | None) -> tuple[list[str], bool]:
    ropes = {kind: settings(config, kind) for kind in _kinds(config)}
    rotating = [rope for rope in ropes.values() if rope]
    lacking = [f"WRONG: {fault}" for rope in rotating for fault in _lacking(rope)]
    if lacking:
        return list(dict.fromkeys(lacking)), False
    numbers = {kind: _numbers(rope) for kind, rope in ropes.items() if rope}
    lines = [_headline(config, rotating)]
    lines += [f"  {kind:18} {_layer(rope, numbers.get(kind))}" for kind, rope in ropes.items()]
    faults = list(dict.fromkeys(_faults(config, rotating)))
    lines += [f"check: {fault}" for fault in faults]
    kind = config.get("model_type", "llama")
    if kind not in RUN.split():
        lines += [f"note: no class of {kind!r} was run; it may read the file in another way"]
    if config.get("no_rope_layers"):
        lines += [f"note: {config['no_rope_layers'].count(0)} layers do not rotate"]
    conventions = {name: None for found in numbers.values() for name in found["conventions"]}
    lines += [f"makers differ: {name}" for name in conventions if "`" in name]
    right = True
    for each in [ENGINES[engine]] if engine else ENGINES.values():
        verdicts = list(dict.fromkeys(_verdicts(each, config, ropes)))
        right &= not verdicts or not engine
        lines += [f"{each.name + ' ' + each.version:20}  WRONG: {verdict}" for verdict in verdicts]
        if not verdicts:
            verdict = "not run with this model type" if kind in each.not_run.split() else "right"
            lines.append(f"{each.name + ' ' + each.version:20}  {verdict}")
    return lines, right and not faults


def _read(path: str) -> dict[str, Any]:
    """The part of the file that describes the language model."""
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise Misuse(f"{path} is no JSON: {error}") from None
    for part in ("thinker_config", "llm_config", "text_config"):
        config = config.get(part, config) if isinstance(config, dict) else None
    if not isinstance(config, dict):
        raise Misuse(f"{path} is no configuration: a config.json holds an object")
    config = reading.completed(config)
    sizes = () if config.get("head_dim") else ("hidden_size", "num_attention_heads")
    missing = [key for key in (LONGEST, *sizes) if key not in config]
    if missing:
        raise Misuse(f"{path} states no {', no '.join(missing)}: is it of a model with RoPE?")
    given = stated(config)
    if not isinstance(given, dict) or not _kinds(config):
        raise Misuse(f"{path}: rotary settings must be an object of settings; got {given!r}")
    for each in [config, given, *(given[kind] or {} for kind in _kinds(config) if kind in given)]:
        for key, value in each.items():
            most = 1e6 if key in SIZES else 1e12
            if key in NUMBERS | SIZES and value is not None and not _number(value, most):
                rule = f"must be a number above 0 and below {most:g}"
                raise Misuse(f"{path}: `{key}` {rule}; got {repr(value)[:40]}")
            if key == "truncate" and not isinstance(value, bool):
                raise Misuse(f"{path}: `truncate` must be true or false; got {value!r}")
            if key.endswith(("long_factor", "short_factor")) and not (
                isinstance(value, list) and all(map(_number, value))
            ):
                raise Misuse(f"{path}: `{key}` must be a list of numbers above 0")
    return config


def _number(value: Any, most: float = 1e12) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < most


def _kinds(config: Mapping[str, Any]) -> list[str]:
    given = stated(config)
    kinds = [kind for kind in given if isinstance(given[kind], dict | None)]
    if reading.by_kind(config):
        return kinds
    windows = SLIDING in (config.get("layer_types") or ()) or reading.LOCAL_BASE in config
    return [FULL, SLIDING] if windows else [FULL]


def _lacking(rope: Mapping[str, Any]) -> Iterator[str]:
    """What makes a reader stop."""
    kind = rope["rope_type"]
    if kind not in KEYS:
        near = difflib.get_close_matches(str(kind), KEYS, 1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        yield f"rope type {kind!r} is unknown; those that are known: {', '.join(KEYS)}{guess}"
        return
    for key in sorted(KEYS[kind][0]):
        if rope["given"].get(key) is None:
            yield f"rope type {kind!r} needs `{key}`"
    for key in ("short_factor", "long_factor"):
        listed, pairs = rope.get(key), rope["rotary_dims"] // 2
        if kind == "longrope" and not (isinstance(listed, list) and len(listed) == pairs):
            yield f"`{key}` must be a list of {pairs} numbers, one for each pair"


def _faults(config: Mapping[str, Any], rotating: list[dict[str, Any]]) -> Iterator[str]:
    """Keys that are ignored, or contradict each other."""
    if config.get("rope_scaling") and config.get("rope_parameters"):
        yield "rope_scaling and rope_parameters are both there; rope_scaling is read"
    for rope in rotating:
        kind, given = rope["rope_type"], rope["given"]
        known = KEYS[kind][0] | KEYS[kind][1] | reading.SHARED | reading.OWN_KEYS
        for key in sorted(set(given) - known):
            near = difflib.get_close_matches(key, known - set(given), 1)
            near = near if key != "attn_factor" else []  # a factor of another meaning
            guess = f"; did you mean `{near[0]}`?" if near else ""
            yield f"`{key}` is no key of rope type {kind!r}: transformers ignores it{guess}"
        if "factor" in given and not {"type", "rope_type"} & set(given):
            yield "`rope_type` is not stated, so nothing is extended"
        if {"type", "rope_type"} <= set(given) and given["type"] != given["rope_type"]:
            yield f"`type` is {given['type']!r}; transformers reads `rope_type`, {kind!r}"
        for key in () if reading.by_kind(config) else ("rope_theta", ORIGINAL):
            inner, outer = stated(config).get(key), config.get(key)
            if None not in (inner, outer) and inner != outer:
                read = rope[key]
                yield f"`{key}` is {outer:,}, and {inner:,} in the rope settings; {read:,} is read"
        if "rope_theta" not in {**config, **given}:
            yield "`rope_theta` is not stated, so the class of the model decides: often 10,000"
        reach, states_l = rope["factor"] * rope[ORIGINAL], ORIGINAL in {**config, **given}
        if kind in reading.WITH_L and not states_l:
            yield f"`{ORIGINAL}` is not stated, so L is `{LONGEST}`, {rope[LONGEST]:,}: state it"
        if kind in ("yarn", "longrope") and states_l and reach != rope[LONGEST]:
            yield f"`{LONGEST}` is {rope[LONGEST]:,}; L x factor is {reach:,.0f}"
        if rope.get("attention_factor") is not None and rope.get("mscale"):
            yield "`attention_factor` is given, so `mscale` is ignored"
        if bool(rope.get("mscale")) != bool(rope.get("mscale_all_dim")):
            yield "`mscale` and `mscale_all_dim` are read only together; one is missing or 0"
        if rope.get("alpha"):
            yield "`alpha` fixes the base, so `factor` is ignored and nothing is dynamic"
        if (rope.get("beta_fast") or 32) < (rope.get("beta_slow") or 1):
            yield "`beta_fast` is below `beta_slow`: are they swapped?"


def _headline(config: Mapping[str, Any], rotating: list[dict[str, Any]]) -> str:
    model, longest = config.get("model_type", "a model"), config[LONGEST]
    trained = min((rope[ORIGINAL] for rope in rotating), default=longest)
    return f"{model}: L = {trained:,}; longest row {longest:,}, {longest / trained:g} L"


def _layer(rope: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> str:
    if rope is None or found is None:
        return "no rotation"
    kind = rope["rope_type"]
    by = f" by {rope['factor']:g}" if rope["factor"] != 1 else ""
    words = [f"{kind}{by}, theta {rope['rope_theta']:,}, {rope['rotary_dims']} dims rotate"]
    plain = _numbers(rope | {"rope_type": "default"})["inv_freq"]
    if kind not in ("default", "dynamic", "longrope"):
        slowed = np.isclose(found["inv_freq"] * rope["factor"], plain, rtol=1e-6)
        kept = np.isclose(found["inv_freq"], plain, rtol=1e-6)
        words += [f"{kept.sum()} of {len(plain)} pairs kept, {slowed.sum()} divided{by}"]
    if found["attention_factor"] != 1:
        words += [f"cos and sin times {found['attention_factor']:.6g}"]
    if found["logit_factor"] != 1:
        words += [f"logits times {found['logit_factor']:.6g}"]
    return "; ".join(words)


def _verdicts(engine: Engine, config: Mapping[str, Any], ropes: Mapping[str, Any]) -> Iterator[str]:
    """What an engine gets wrong of this file, and by how much."""
    for layer_type, rope in ropes.items():
        if rope is None:
            continue
        if rope["rope_type"] in engine.lacks.split():
            yield f"it has no rope type {rope['rope_type']!r}"
            continue
        longest, trained = rope[LONGEST], rope[ORIGINAL]
        lengths = sorted({trained // 2, trained, trained + 1, longest, 2 * longest})
        varies = rope["rope_type"] in ("dynamic", "longrope")
        for flaw in flaws_of(engine, config):
            try:
                made = {length: misread([flaw], config, length, layer_type) for length in lengths}
            except Refused as stop:
                yield str(stop)
                continue
            found = [(_difference(_numbers(rope, n), got), n) for n, got in made.items()]
            (amount, words), length = max(found)
            if amount:
                yield f"{FLAWS[flaw].sentence}: {f'at {length:,} tokens ' if varies else ''}{words}"


def flaws_of(engine: Engine, config: Mapping[str, Any]) -> list[str]:
    """The flaws that an engine has for a model type."""
    kind, names = config.get("model_type", "llama"), engine.flaws.split()
    return [name for name in names if kind not in WITHOUT.get((engine.name, name), "").split()]


def _difference(right: Mapping[str, Any], got: Mapping[str, Any]) -> tuple[float, str]:
    """How far numbers are from the right ones, and in words."""
    expected, found = right["inv_freq"], got["inv_freq"]
    if found.shape != expected.shape:
        return np.inf, f"{2 * len(found)} dims rotate in place of {2 * len(expected)}"
    off = np.abs(found - expected) / np.where(expected == 0, 1, expected)
    wrong, words = int(np.sum(off > 1e-5)), []
    if wrong:
        words = [f"{wrong} of {len(off)} frequencies differ, by up to {100 * off.max():.3g}%"]
    amount = off.max() if wrong else 0.0
    for name in ("attention_factor", "logit_factor"):
        if not np.isclose(got[name], right[name], rtol=1e-5):
            amount = max(amount, abs(got[name] / right[name] - 1))
            words += [f"{name} {got[name]:.6g} in place of {right[name]:.6g}"]
    return amount, ", ".join(words)
