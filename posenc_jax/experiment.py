"""What makes two runs the same: fields in which they differ, and fields that are free to."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posenc_jax import configuration

# What may differ when a run goes on: how long, how often, how it is shown, where tokens are kept.
FREE = (
    "steps",
    "stop_at",
    "log_every",
    "valid_every",
    "save_every",
    "valid_batches",
    "keep",
    "sharding",
    "distributed",
    "wandb",
    "data.cache",
)


def differences(
    saved: Mapping,
    now: Mapping,
    free: tuple[str, ...] = FREE,
    words: tuple[str, str] = ("in the workdir", "now"),
) -> list[str]:
    """Fields in which a run's saved configuration differs from one given now, but for free ones."""
    before, after = dict(_flat(saved)), dict(_flat(now))
    lines = []
    for name in sorted(before | after):
        if not _within(name, free):
            old, new = before.get(name), after.get(name)  # a field that came later is None
            if old != new and not (old != old and new != new):  # nan is itself here
                lines.append(f"{name}: {old!r} {words[0]}, {new!r} {words[1]}")
    return lines


def unlike(config, source: Mapping) -> list[str]:
    """What of model, encoding and tokenizer is not that of the run whose weights are taken."""
    chosen = []
    for tree in (source, config.to_dict()):
        fields = dict(_flat({name: tree[name] for name in ("model", "encoding")}))
        fields["data.tokenizer"] = _tokenizer(tree["data"])
        chosen.append(fields)
    free = {f"model.{name}" for name in ("dtype", "remat", "scan", "vocab")}
    there, here = chosen
    return [
        f"{name} is {there.get(name)!r} in {config.init_from} and {here.get(name)!r} here"
        for name in sorted((there | here).keys() - free)
        if there.get(name) != here.get(name)
    ]


def _tokenizer(data: Mapping) -> str | None:
    """As it was named; None where prepared tokens do not tell."""
    if not data.get("tokens"):
        return data["tokenizer"]
    with suppress(OSError, ValueError, KeyError, TypeError):
        card = Path(data["tokens"]).expanduser() / "corpus.json"
        return json.loads(card.read_text(encoding="utf-8"))["tokenizer"]
    return None


def experiment(config) -> dict[str, Any]:
    """What two runs share that differ by chance alone: all but the seed, how often something is
    said or saved, and how it is computed."""
    fields = dict(_flat(with_defaults(config.to_dict())))
    fields["original_length"] = fields["original_length"] or fields["train_length"]
    fields["init_from"] = without_seed(str(fields["init_from"] or ""))
    how = ("seed", "model.scan", "model.remat", "model.attention")
    free = (*(name for name in FREE if name != "steps"), *how)
    return {name: value for name, value in sorted(fields.items()) if not _within(name, free)}


def with_defaults(fields: Mapping) -> dict[str, Any]:
    """A field that an older run does not have is its default."""

    def filled(given: Mapping, default: Mapping) -> dict[str, Any]:
        inner = {
            name: filled(given[name], value)
            for name, value in default.items()
            if isinstance(value, Mapping) and isinstance(given.get(name), Mapping)
        }
        return {**default, **given, **inner}

    return filled(fields, configuration.training().to_dict())


def without_seed(name: str) -> str:
    """`rope-s0-L128` -> `rope-L128`: the names that sweeps give, over all seeds."""
    return re.sub(r"-s\d+(?=-|/|$)", "", name)


def _within(name: str, fields: Iterable[str]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for field in fields)


def _flat(tree: Mapping, prefix: str = ""):
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value
