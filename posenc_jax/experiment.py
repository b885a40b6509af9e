"""Compare the configurations of runs: fields in which they differ, and fields free to differ."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posenc_jax import configuration

# Fields a resumed run may change: how long, how often, how it is called and shown, where tokens
# are kept.
FREE = (
    "steps",
    "label",
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

# Where text, tokens and tokenizer lie; that they are the same is checked by their content.
PLACES = ("data.path", "data.valid_path", "data.tokens", "data.tokenizer")


def differences(
    saved: Mapping,
    now: Mapping,
    free: tuple[str, ...] = FREE,
    words: tuple[str, str] = ("in the workdir", "now"),
) -> list[str]:
    """Fields, except free ones, in which a saved configuration differs from the current one."""
    before, after = (dict(_flat(tree)) for tree in (saved, now))
    lines = []
    for name in sorted(before | after):
        if not _within(name, free):
            old, new = before.get(name), after.get(name)  # a field that came later is None
            if old != new and not (old != old and new != new):  # nan equals nan here
                lines.append(f"{name}: {old!r} {words[0]}, {new!r} {words[1]}")
    return lines


def unlike(config, source: Mapping) -> list[str]:
    """Differences of model, encoding and tokenizer to the run whose weights are taken."""
    chosen = []
    now = config.to_dict()
    if source["encoding"]["name"] != "randomized":
        now |= {"encoding": _without_drawing(now["encoding"])}
    for tree in (source, now):
        groups = {name: tree[name] for name in ("model", "encoding")}
        fields = dict(_flat(groups))
        fields["data.tokenizer"] = _tokenizer(tree["data"])
        chosen.append(fields)
    if not {fields["data.tokenizer"] for fields in chosen} & {None, "bytes"}:
        for fields in chosen:  # of one content or not, which training tells
            del fields["data.tokenizer"]
    free = {f"model.{name}" for name in ("dtype", "remat", "scan", "vocab")}
    there, here = chosen
    return [
        f"{name} is {there.get(name)!r} in {config.init_from} and {here.get(name)!r} here"
        for name in sorted((there | here).keys() - free)
        if there.get(name) != here.get(name)
    ]


def _without_drawing(encoding: Mapping) -> Mapping:
    """The encoding inside `randomized`, whose weights know nothing of how positions are drawn."""
    if encoding["name"] != "randomized":
        return encoding
    drawing = ("inner", "max_position", "inner_length", "evenly")
    inner = {name: value for name, value in encoding.items() if name not in drawing}
    return inner | {"name": encoding["inner"]}


def _tokenizer(data: Mapping) -> str | None:
    """The tokenizer's name; None where prepared tokens do not hold it."""
    if not data.get("tokens"):
        return data["tokenizer"]
    with suppress(OSError, ValueError, KeyError, TypeError):
        card = Path(data["tokens"]).expanduser() / "corpus.json"
        return json.loads(card.read_text(encoding="utf-8"))["tokenizer"]
    return None


def experiment(config) -> dict[str, Any]:
    """Fields that runs of one experiment share: all but the seed, how often something is logged or
    saved, and how it is computed. One that is None is left out: older runs lack it."""
    fields = dict(_flat(with_defaults(config.to_dict())))
    fields["original_length"] = fields["original_length"] or fields["train_length"]
    fields["init_from"] = without_seed(str(fields["init_from"] or ""))
    how = ("seed", "model.scan", "model.remat", "model.attention")
    free = (*(name for name in FREE if name != "steps"), *how)
    given = {name: value for name, value in sorted(fields.items()) if value is not None}
    return {name: value for name, value in given.items() if not _within(name, free)}


def chosen(config) -> list[str]:
    """`FIELD=VALUE` for every field with another value than its default."""
    usual = dict(_flat(configuration.training().to_dict()))
    fields = dict(_flat(config.to_dict()))
    return [
        f"{name}={value}"
        for name, value in fields.items()
        if value is not None and value != usual.get(name)
    ]


def with_defaults(fields: Mapping) -> dict[str, Any]:
    """Fill in the default of every field that a run lacks."""

    def filled(given: Mapping, default: Mapping) -> dict[str, Any]:
        inner = {
            name: filled(given[name], value)
            for name, value in default.items()
            if isinstance(value, Mapping) and isinstance(given.get(name), Mapping)
        }
        return {**default, **given, **inner}

    return filled(fields, configuration.training().to_dict())


def without_seed(name: str) -> str:
    """Drop the seed from a sweep's name: `rope-s0-L128` -> `rope-L128`."""
    return re.sub(r"-s\d+(?=-|/|$)", "", name)


def _within(name: str, fields: Iterable[str]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for field in fields)


def _flat(tree: Mapping, prefix: str = ""):
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value
