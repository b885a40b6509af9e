"""Compare the configurations of runs: fields in which they differ, and fields free to differ."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from posenc_jax.config import schema
from posenc_jax.config.resolve import Fields
from posenc_jax.config.schema import Training
from posenc_jax.runtime.files import expanded

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

# Places of text, tokens and tokenizer, which are compared by their content.
PLACES = ("data.path", "data.valid_path", "data.tokens", "data.tokenizer")

# Fields that change how a run is computed, and nothing that it learns.
COMPUTED_BY = ("seed", "model.scan", "model.remat", "model.attention")


def differences(
    before: Training,
    after: Training,
    free: tuple[str, ...] = FREE,
    words: tuple[str, str] = ("in the workdir", "now"),
) -> list[str]:
    """Fields, except free ones, in which two configurations differ."""
    one, other = flat(before), flat(after)
    return [
        f"{name}: {one.get(name)!r} {words[0]}, {other.get(name)!r} {words[1]}"
        for name in sorted(one | other)
        if not _within(name, free) and one.get(name) != other.get(name)
    ]


def other_fields(run: Training, config: Training) -> list[str]:
    """Fields in which a configuration differs from the run that it would resume."""
    of_tokenizer = ("model.vocab",) if config.model.vocab is None else ()
    return differences(run, config, (*FREE, *of_tokenizer))


def unlike(fields: Fields, source: Training, place: str) -> list[str]:
    """Differences of model, encoding and tokenizer to the run whose weights are taken."""
    theirs = schema.as_fields(source)
    sides = []
    for side in (theirs, fields):
        encoding = side["encoding"]
        if theirs["encoding"]["name"] != "randomized":
            encoding = _without_drawing(encoding)
        chosen = _flat({"model": side["model"], "encoding": encoding})
        sides.append(dict(chosen) | {"data.tokenizer": _tokenizer(side["data"])})
    there, here = sides
    free = {*COMPUTED_BY, "model.dtype", "model.vocab"}
    if not {there["data.tokenizer"], here["data.tokenizer"]} & {None, "bytes"}:
        free.add("data.tokenizer")  # training compares their content
    return [
        f"{name} is {there.get(name)!r} in {place} and {here.get(name)!r} here"
        for name in sorted((there | here).keys() - free)
        if there.get(name) != here.get(name)
    ]


def _without_drawing(encoding: Mapping) -> Mapping:
    """The encoding inside `randomized`: its weights do not depend on how positions are drawn."""
    if encoding["name"] != "randomized":
        return encoding
    drawing = ("inner", "max_position", "inner_length", "evenly")
    inner = {name: value for name, value in encoding.items() if name not in drawing}
    return inner | {"name": encoding["inner"]}


def _tokenizer(data: Mapping) -> str | None:
    """The tokenizer's name; None where prepared tokens do not have it."""
    if not data.get("tokens"):
        return data.get("tokenizer", "bytes")
    from posenc_jax.data.corpora import card_of

    card = card_of(expanded(data["tokens"]))
    return card["tokenizer"] if card else None


def experiment(config: Training) -> dict[str, Any]:
    """Fields that runs of one experiment share: all but the seed, how often something is logged or
    saved, and how it is computed."""
    fields = flat(config)
    fields["original_length"] = fields["original_length"] or fields["train_length"]
    fields["init_from"] = without_seed(config.init_from)
    free = (*(name for name in FREE if name != "steps"), *COMPUTED_BY)
    return {name: value for name, value in sorted(fields.items()) if not _within(name, free)}


def changed(config: Training) -> list[str]:
    """`FIELD=VALUE` for every field with another value than its default."""
    usual = dict(_flat(schema.training().to_dict()))
    return [
        f"{name}={value}"
        for name, value in flat(config).items()
        if value is not None and value != usual.get(name)
    ]


def without_seed(name: str) -> str:
    """Drop the seed from a sweep's name: `rope-s0-L128` -> `rope-L128`, `s0-L128` -> `L128`."""
    return re.sub(r"-s\d+(?=-|/|$)|(?:^|(?<=/))s\d+(?:-|(?=/|$))", "", name) or name


def flat(config: Training) -> dict[str, Any]:
    """Every field by its whole name: `model.width`."""
    return dict(_flat(schema.as_fields(config)))


def _within(name: str, fields: Iterable[str]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for field in fields)


def _flat(tree: Mapping, prefix: str = ""):
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value
