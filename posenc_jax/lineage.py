"""Fill in what a configuration leaves open from another run.

A resumed run takes it from itself, a run with `init_from` from the run it starts from.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from posenc_jax import composition, configuration, registry
from posenc_jax.composition import Part
from posenc_jax.configuration import Config, beside_tokens, read_by
from posenc_jax.errors import ConfigError
from posenc_jax.experiment import with_defaults

FORMAT = 3  # of config.json and of a checkpoint's card
TOKENIZER = "tokenizer.json"  # that a run keeps
# A file without these is not the configuration of a run.
ESSENTIAL = (
    "seed",
    "train_length",
    "batch_size",
    "steps",
    "model",
    "encoding",
    "extension",
    "data",
)


def read(workdir: Path) -> dict[str, Any]:
    """The configuration of a run; a field that came later has its default."""
    fields = json.loads((workdir / "config.json").read_text(encoding="utf-8"))
    missing = set(ESSENTIAL) - set(fields)
    if missing:
        raise ValueError(f"no {', '.join(sorted(missing))}")
    check_format(fields.pop("format", None))
    fields = with_defaults(fields)
    return fields | {"data": _with_own_tokenizer(fields["data"], workdir)}


def check_format(written: Any) -> None:
    if written != FORMAT:
        raise ValueError(
            f"it has format {written!r}, and this version reads {FORMAT}: use the version of "
            "posenc-jax that wrote it"
        )


def _with_own_tokenizer(data: Mapping[str, Any], workdir: Path) -> Mapping[str, Any]:
    """A run's `data` with the tokenizer it keeps, where the named one is not here."""
    name, kept = data.get("tokenizer"), workdir / TOKENIZER
    if name in (None, "bytes") or Path(name).expanduser().exists() or not kept.is_file():
        return data
    return dict(data) | {"tokenizer": str(kept)}


def original_length(config, source: Mapping | None = None) -> int:
    """L of the formulas: the run's own, or that of the run it starts from or resumes."""
    if source is None:
        return config.original_length or config.train_length
    return config.original_length or source.get("original_length") or source["train_length"]


def trained_length(config) -> int:
    """The longest length a run is trained at."""
    return max(config.train_length, original_length(config))


def resolved(config, begun: Mapping | None = None) -> Config:
    """The configuration with every value that training reads, each in one place."""
    config = config.copy_and_resolve_references()
    config.extension = _in_fields(config.extension)
    config = _from_source(config, begun)
    with config.encoding.unlocked():
        for name in configuration.OF_ANY_ENCODING:
            if name not in config.encoding:  # where a recipe replaced the group
                config.encoding[name] = getattr(configuration.Encoding, name)
    config.data = with_unset(_as_begun(config.data, begun))
    if config.init_from and not config.original_length:
        with suppress(OSError, ValueError, KeyError, TypeError):  # which validation tells
            source = begun or read(Path(config.init_from))
            config.original_length = original_length(config, source)
    return config


def _in_fields(extension: Config) -> Config:
    """Split `yarn:8:beta_fast=16` into fields; a composition keeps its options in its name."""
    given = {name: value for name, value in extension.items() if value is not None}
    try:
        parts = composition.parts(given["name"])
    except (KeyError, ValueError):  # which validation tells
        return extension
    scales = {part.scale for part in parts} - {None}
    beside = given.get("scale", 1)
    if len(scales) > 1 or (scales and beside not in (1, *scales)):
        raise ConfigError(
            f"extension.name = {given['name']!r} and extension.scale = {beside} give different "
            "scales; give one"
        )
    given["scale"] = next(iter(scales), beside)
    if len(parts) > 1:
        given["name"] = composition.text([Part(p.name, None, p.options) for p in parts])
        return ConfigDict(given)
    (part,) = parts
    twice = sorted(set(part.options) & set(given) | set(part.options) & {"name", "scale"})
    if twice:
        raise ConfigError(f"extension.name = {given['name']!r} sets {twice[0]!r} a second time")
    return ConfigDict(given | {"name": part.name} | dict(part.options))


def _as_begun(data, begun: Mapping | None) -> Config:
    """What a resumed run keeps: its tokenizer, where the named one is not here."""
    data = data.copy_and_resolve_references()
    if begun is not None:
        name, kept = data.get("tokenizer"), begun["data"].get("tokenizer")
        if name not in (None, "bytes") and kept and not Path(name).expanduser().exists():
            data.tokenizer = kept
    return data


def with_unset(data) -> Config:
    """`data` with a value in every field that its source reads; with prepared tokens, which read no
    source, the defaults of the other fields are removed."""
    data = data.copy_and_resolve_references()
    if data.get("mixture"):
        return data  # its texts have fields of their own
    with data.ignore_type():
        data.tokens = data.tokens or None
        if data.tokens:
            usual = configuration.training().data
            for name in set(data) - {"tokens", *beside_tokens()}:
                data[name] = None if data[name] == usual[name] else data[name]
            return data
        for name, readers in read_by().items():  # `task` comes before the fields that it reads
            if data.source in readers.sources and data.get(name) is None:
                if readers.tasks is None or data.task in readers.tasks:
                    data[name] = readers.unset(data.get("task"))
    return data


def part_of(data, name: str) -> Config:
    """`data` of one text of a mixture, by the name of its source or its task."""
    part = data.copy_and_resolve_references()
    task = name if name in registry.tasks() else None
    with part.ignore_type():
        part.mixture = None
        part.source = "synthetic" if task else name
        part.task = task
        for field, readers in read_by().items():
            read = part.source in readers.sources
            if not read or (readers.tasks is not None and task not in readers.tasks):
                part[field] = "" if field == "path" else None
        part.task = task
        part.answers_only = data.answers_only and task is not None
    return with_unset(part)


def _from_source(config, begun: Mapping | None) -> Config:
    defaults = configuration.training()
    groups = [name for name in ("model", "encoding", "data") if _is_open(name, config, defaults)]
    single = [n for n in ("train_length", "batch_size", "learning_rate") if config[n] is None]
    if not groups and not single:
        return config
    source, again = begun, begun is not None
    if source is None:
        if not config.init_from:
            raise ConfigError(
                f"init_from is missing: this recipe takes {', '.join([*groups, *single])} from a "
                "run; give --config.init_from=RUN"
            )
        try:
            source = read(Path(config.init_from))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(no_source(config, error)) from error
    for name in groups:
        given = {field: value for field, value in config[name].items() if value is not None}
        taken = dict(source[name])
        if name == "data":
            taken = _beside(given, taken, defaults)
        config[name] = ConfigDict(taken | given)
    made = source if again else _lengthened(config, source)
    for name in single:
        config[name] = made[name]
    return config


def _beside(given: Mapping, taken: dict[str, Any], defaults) -> dict[str, Any]:
    """Fields of the other run's `data` that go with those given here."""
    kept = {name: taken[name] for name in beside_tokens()}
    if given.get("tokens"):
        return dict.fromkeys(taken) | kept
    if given.get("source") and taken.get("tokens"):
        return defaults.data.to_dict() | kept
    if given.get("source") not in (None, taken.get("source")):
        return taken | {field: None for field in read_by() if field != "path"} | {"path": ""}
    return taken


def no_source(config, error: Exception) -> str:
    return (
        f"init_from must be the workdir of a run; {config.init_from!r} holds no config.json that "
        f"can be read: {error if isinstance(error, ValueError) else type(error).__name__}"
    )


def _is_open(name: str, config, defaults) -> bool:
    """Whether a group lacks a required value."""
    set_by_default = (field for field, value in defaults[name].items() if value is not None)
    needed = [field for field in set_by_default if field not in configuration.OF_ANY_ENCODING]
    if name == "data" and config.data.get("tokens"):
        needed = beside_tokens()
    return any(config[name].get(field) is None for field in needed)


def _lengthened(config, source: Mapping) -> dict[str, Any]:
    """Length, batch and rate for training at the length the extension reaches, at as many tokens a
    step and a fifth of the rate."""
    original = source.get("original_length") or source["train_length"]
    length = config.train_length or round(config.extension.scale * original)
    tokens = source["batch_size"] * source["train_length"]
    return {
        "train_length": length,
        "batch_size": max(1, tokens // length),
        "learning_rate": source["learning_rate"] / 5,
    }
