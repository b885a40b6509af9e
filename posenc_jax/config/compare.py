"""Compare the configurations of runs: fields in which they differ, and fields free to differ."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from posenc_jax import composition
from posenc_jax.config.resolve import NEUTRAL, encoding_defaults
from posenc_jax.config.schema import Encoding, Training, as_fields, flat, training

# Fields a resumed run may change: how long, how often, how it is called and shown, where tokens
# are kept.
FREE = (
    "steps",
    "anneal",
    "label",
    "stop_at",
    "log_every",
    "valid_every",
    "save_every",
    "valid_batches",
    "keep",
    "profile",
    "sharding",
    "sequence",
    "distributed",
    "model.attention",
    "wandb",
    "data.cache",
)

# Places of text, tokens, tokenizer and weights, which are compared by their content.
PLACES = ("data.path", "data.valid_path", "data.tokens", "data.tokenizer", "init_from")

# Options of `randomized` that say where tokens stand in training alone.
JUMPS = "max_position", "positions", "chunks", "tail"

# Fields that change how a run is computed, and nothing that it learns.
COMPUTED_BY = ("seed", "model.scan", "model.remat", "model.attention")


def differences(
    before: Training,
    after: Training,
    free: tuple[str, ...] = FREE,
    words: tuple[str, str] = ("in the workdir", "now"),
) -> list[str]:
    """Fields, except free ones, in which two configurations differ."""
    one, other = (flat(as_fields(config)) for config in (before, after))
    return [
        f"{name}: {one.get(name)!r} {words[0]}, {other.get(name)!r} {words[1]}"
        for name in sorted(one | other)
        if not _within(name, free) and _value(one.get(name)) != _value(other.get(name))
    ]


def _value(value: Any) -> tuple[bool, Any]:
    return isinstance(value, bool), value  # True == 1, and is no number


def other_fields(run: Training, config: Training) -> list[str]:
    """Fields in which a configuration differs from the run that it would resume."""
    of_tokenizer = ("model.vocab",) if config.model.vocab is None else ()
    return differences(run, config, (*FREE, *of_tokenizer))


def unlike(source: Training, config: Training, place: str) -> list[str]:
    """Differences of model and encoding to the run whose weights are taken."""
    encoding, _ = without_wrappers(config.encoding, source.encoding)
    config = replace(config, encoding=encoding)
    free = (*COMPUTED_BY, "model.dtype", "model.vocab")
    free += ("model.lora",) if source.model.lora is None else ()
    if source.encoding.options.get("inner_length"):  # that of the formulas
        free += tuple(f"encoding.{name}" for name in JUMPS)
    lines = differences(source, config, free, (f"in {place}", "here"))
    return [line for line in lines if line.startswith(("model.", "encoding."))]


def without_wrappers(encoding: Encoding, source: Encoding) -> tuple[Encoding, int]:
    """The encoding without those around it that a source lacks, and how many they are: they change
    nothing until they are trained, or draw positions."""
    from posenc_jax import schemes  # imports jax

    depth = 0
    while encoding.name != source.name and _is_neutral(encoding):
        own = schemes.options_of(encoding.name)
        options = {name: value for name, value in encoding.options.items() if name not in own}
        (inner,) = composition.parts(encoding.options["inner"])
        options |= inner.options
        options = encoding_defaults({"name": inner.name, **options}) | options
        encoding, depth = replace(encoding, name=inner.name, options=options), depth + 1
    if source.options.get("frequencies") == "fixed":  # trained ones begin as these
        fixed = {name: source.options[name] for name in ("frequencies", "per")}
        encoding = replace(encoding, options={**encoding.options, **fixed})
    return encoding, depth


def _is_neutral(encoding: Encoding) -> bool:
    return encoding.name in NEUTRAL and (encoding.name != "ssmax" or encoding.options["bias"])


def experiment(config: Training) -> dict[str, Any]:
    """Fields that runs of one experiment share: all but the seed, how often something is logged or
    saved, and how it is computed."""
    fields = flat(as_fields(config))
    fields["original_length"] = fields["original_length"] or fields["train_length"]
    fields["init_from"] = without_seed(config.init_from)
    free = (*(name for name in FREE if name != "steps"), *COMPUTED_BY)
    return {name: value for name, value in sorted(fields.items()) if not _within(name, free)}


def changed(config: Training) -> list[str]:
    """`FIELD=VALUE` for every field with another value than its default."""
    usual = flat(training())
    return [
        f"{name}={value}"
        for name, value in flat(as_fields(config)).items()
        if value is not None and value != usual.get(name)
    ]


def without_seed(name: str) -> str:
    """Drop the seed from a sweep's name: `rope-s0-L128` -> `rope-L128`, `s0-L128` -> `L128`."""
    return re.sub(r"-s\d+(?=-|/|$)|(?:^|(?<=/))s\d+(?:-|(?=/|$))", "", name) or name


def _within(name: str, fields: Iterable[str]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for field in fields)
