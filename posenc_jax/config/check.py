"""Validate a configuration: fields, numbers, names, and that its encoding and extension can be
built, which imports jax."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

import models
from posenc_jax import fields, registry
from posenc_jax.config import compare, schema
from posenc_jax.config.resolve import Fields, encoding_defaults, resolve, source_of
from posenc_jax.config.schema import Evaluation, Training
from posenc_jax.data import sources
from posenc_jax.data.sources import _files
from posenc_jax.runtime.errors import ConfigError

OF_PARTS = ("model.", "encoding.", "extension.")  # without them no encoding can be built


def load(
    recipe: ConfigDict | Mapping[str, Any],
    saved: Training | None = None,
    *,
    more: Sequence[str] = (),
    planned: Mapping[Path, Training] = {},
) -> Training:
    """The typed configuration of a recipe, or a ConfigError with every mistake.

    `saved` is the run that is resumed; `more` are mistakes that a program found itself; `planned`
    are runs by their folders that `init_from` may name before they are there. Missing files are
    reported beside other mistakes; alone they are an error of the data.
    """
    given = recipe.to_dict() if isinstance(recipe, ConfigDict) else dict(recipe)
    if wrong := _structure(given, schema.training().to_dict()):
        raise ConfigError(*more, *wrong)
    try:
        values = resolve(given, saved, planned)
    except ConfigError as error:
        raise ConfigError(*more, *error.args) from error
    wrong = fields.mistakes(Training, values)
    model = models.config.mistakes(values["model"], "model.")
    # With the defaults of what is wrong, the text and the encoding can be judged nevertheless.
    usual = {field.name: field.default for field in fields.fields(Training)}
    judged = values | {name: usual[name] for name in wrong.keys() & usual.keys()}
    source, of_data = _data(judged)
    problems = [*more, *wrong.values(), *_together(values), *model, *of_data]
    if not model and not any(name.startswith(OF_PARTS) for name in wrong):
        run = schema.from_fields(judged | ({} if source else {"data": {"source": "stdlib"}}))
        if saved is None and run.init_from:
            problems += _unlike(run, source_of(run.init_from, planned))
        problems += _mistakes_of_building(run)
        if not problems:
            return run
    missing = source.missing() if isinstance(source, _files.Files) else []
    raise ConfigError(*problems, *missing)


def _mistakes_of_building(run: Training) -> list[str]:
    """Mistakes in the encoding; a distributed run builds it once its processes have met."""
    if run.distributed:
        return []
    from posenc_jax.config import building

    return building.mistakes(run)


def _structure(given: Mapping, expected: Mapping) -> list[str]:
    """Unknown or missing fields, and groups that are not mappings."""
    problems, names = [], schema.flat(expected)
    for name, default in expected.items():
        if isinstance(default, Mapping) and not isinstance(given.get(name), Mapping):
            problems.append(f"{name} is a group of fields; got {given.get(name)!r}")
    if problems:
        return problems
    known_options = {
        "encoding": _encoding_options(given["encoding"]),
        "extension": None,
        "data": sources.every_option(given["data"]),
    }
    for field in (field for field in schema.flat(given) if field not in names):
        group, _, name = field.rpartition(".")
        options = known_options.get(group, ())
        if options is None or name in options:
            continue
        if group == "encoding" and (others := _encodings_with(name)):
            has = f"has: {', '.join(sorted(options))}" if options else "has no options"
            problems.append(
                f"{field}: {name} is an option of {', '.join(others)}; "
                f"{given['encoding']['name']} {has}"
            )
        else:
            every = [*names, *(f"{group}.{option}" for option in options)]
            problems.append(schema.unknown(field, every))
    for name in expected:
        if name not in given:
            problems.append(f"{name} is missing; set single fields, --config.{name}=...")
    return problems


def _encoding_options(encoding: Mapping) -> Iterable[str] | None:
    """The options that an encoding may have; None where its name is not known."""
    inner = str(encoding.get("inner", "")).partition(":")[0]
    if not registry.exists("encoding", encoding.get("name")):
        return None
    return encoding_defaults({**encoding, "inner": inner} if inner else encoding)


def _encodings_with(option: str) -> list[str]:
    from posenc_jax import schemes  # imports jax

    return [name for name in registry.encodings() if option in schemes.options_of(name)]


def _together(values: Fields) -> list[str]:
    """Mistakes in numbers that depend on each other."""
    batch, pieces, problems = values["batch_size"], values["accumulate"], []
    if isinstance(batch, int) and isinstance(pieces, int) and pieces >= 1 and batch % pieces:
        problems.append(f"batch_size must be a multiple of accumulate = {pieces}; got {batch}")
    traced, steps = schema.profiled(str(values["profile"])), values["steps"]
    if traced and isinstance(steps, int) and traced[-1] > steps:
        problems.append(f"profile = {values['profile']!r}: the run has {steps} steps")
    if values["anneal"] and values["schedule"] != "linear":
        problems.append("anneal goes with schedule=linear, whose rate is constant until it falls")
    if values["optimizer"] == "muon" and values["model"].get("lora") is not None:
        problems.append("optimizer=muon goes with whole matrices, not with model.lora; use adamw")
    if values["data"].get("mask_documents") is True and values["encoding"].get("tail"):
        problems.append("encoding.tail moves the end of a row: it goes without data.mask_documents")
    if values["data"].get("prefix") is not None and values["model"].get("bos"):
        problems.append("data.prefix has no effect with model.bos, whose vector replaces it")
    return problems


def _data(values: Fields) -> tuple[sources.Origin | None, list[str]]:
    data, length = values["data"], values["train_length"]
    own = {field.name for field in fields.fields(schema.Data)}
    described = {name: value for name, value in data.items() if name not in own}
    source, problems = sources.read(described, length)
    if getattr(source, "lengths", None) and data.get("mask_documents") is not True:
        problems.append(
            "data.mixture: rows of another length need data.mask_documents=True, without which "
            "they see those beside them"
        )
    if source is not None and data.get("answers_only") is True and not source.has_answers:
        problems.append("data.answers_only has no effect: the text marks no answers")
    return source, problems


def _unlike(run: Training, source: Training) -> list[str]:
    """Mistakes in starting from the run that `init_from` names."""
    from posenc_jax.config import building

    lines = compare.unlike(source, run, run.init_from)
    wrong = [f"init_from: {line}; give the model and the encoding of that run" for line in lines]
    if building.resamples(source) and run.extension != source.extension:
        wrong.append(
            f"init_from: the table of {run.init_from} is that of {source.extension.name!r}; keep "
            "it, extension.name=none, or start from the run before its extension"
        )
    return wrong or building.untrained_parts(run, source)


def mistakes_in_evaluation(values: Mapping[str, Any]) -> list[str]:
    """Mistakes in the configuration of an evaluation, except those of protocols and extensions."""
    expected = schema.evaluation().to_dict()
    names = list(schema.flat(expected))
    wrong = [schema.unknown(field, names) for field in schema.flat(values) if field not in names]
    if wrong:
        return wrong
    problems = [*fields.mistakes(Evaluation, values).values()]
    if values["lengths"] and values["multiples"] != expected["multiples"]:
        problems.append(
            f"lengths = {values['lengths']!r} and multiples = {values['multiples']!r} are "
            "mutually exclusive; give one"
        )
    return problems + _text(values["data"])


def _text(data: Fields) -> list[str]:
    """Mistakes in naming a text other than the run's own."""
    given = {name: value for name, value in data.items() if value and name != "part"}
    source = given.get("source", "")
    others = [*registry.texts(), *registry.tasks()]  # tasks: of the run's mixture
    if source and source not in others and "." not in source:
        return [f"data.source must be one of {', '.join(map(repr, others))}; got {source!r}"]
    if (not source or registry.is_task(source)) and "tokens" not in given:
        return [
            f"data.{name} = {value!r} has no effect without a data.source that reads it"
            for name, value in given.items()
            if name not in ("source", "cache")
        ]
    return sources.read(given, 2)[1]
