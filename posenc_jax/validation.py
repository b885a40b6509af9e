"""Check structure, numbers and choices of a configuration without jax.

`posenc_jax.building` checks the rest by building what the configuration describes.
"""

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from posenc_jax import composition, configuration, fields, lineage, neighbours, registry
from posenc_jax.checks import known, may_be_of_hub, positive, token_count
from posenc_jax.configuration import OF_ANY_ENCODING, Config, read_by, words
from posenc_jax.errors import ConfigError
from posenc_jax.experiment import unlike
from posenc_jax.registry import FILES, SOURCES, encodings, protocols

FORMULA = ("=", "+", "-", "@")  # how a cell begins that a spreadsheet program computes
BUILT_FROM = ("train_length", "original_length", "encoding_rate")  # beside model and encoding


class Judged(NamedTuple):
    problems: list[str]
    buildable: Config | None  # its encoding can be built on the host: no size or name is wrong
    missing_files: list[str] = []  # beside other mistakes; alone they are an error of the data


def validate(config, begun: Mapping | None = None) -> list[str]:
    """Every mistake in a training configuration, each with its field, value and rule.

    `begun` is the configuration of the run that is resumed; what that run started from is settled.
    """
    return judge(config, begun).problems


def judge(config, begun: Mapping | None = None) -> Judged:
    """The mistakes, and the configuration that `posenc_jax.building` can judge further."""
    expected = configuration.training().to_dict()
    wrong = _structure(config.to_dict(), expected, may_be_open=True)
    if wrong:
        return Judged(wrong, None)  # the values cannot be asked for
    try:
        config = lineage.resolved(config, begun)
    except ConfigError as error:
        return Judged([str(error)], None)
    wrong = _structure(config.to_dict(), expected)
    if wrong:
        return Judged(wrong, None)
    values = config.to_dict()
    numbers = fields.mistakes(configuration.Training, values)
    parts = _model(values["model"]) + _names(values["encoding"], values["extension"])
    problems = numbers + _together(values) + parts + _data(config.data)
    problems += fields.mistakes(configuration.Wandb, values["wandb"], "wandb.")
    if begun is None and config.init_from:
        problems += _source(config)
    unfit = parts or any(line.startswith(BUILT_FROM) for line in numbers)
    return Judged(problems, None if unfit else config, _missing_files(config.data))


def _structure(
    given: Mapping,
    expected: Mapping,
    prefix: str = "",
    *,
    may_be_open: bool = False,
    names: Sequence[str] = (),  # of all fields
) -> list[str]:
    problems = []
    names = names or configuration.every_field(ConfigDict(expected))
    for name, default in expected.items():
        field = f"{prefix}{name}"
        if name not in given and prefix == "encoding." and name in OF_ANY_ENCODING:
            continue  # where a recipe replaced the group
        if name not in given:
            problems.append(f"{field} is missing; set single fields, --config.{field}=...")
        elif isinstance(default, Mapping):
            if not isinstance(given[name], Mapping):
                problems.append(f"{field} is a group of fields; got {given[name]!r}")
            else:
                how = {"may_be_open": may_be_open, "names": names}
                problems += _structure(given[name], default, f"{field}.", **how)
        elif may_be_open and given[name] is None:
            continue
        elif isinstance(default, bool) != isinstance(given[name], bool) and default is not None:
            problems.append(f"{field} must be {type(default).__name__}; got {given[name]!r}")
    for name in sorted(set(given) - set(expected)):
        if prefix not in ("encoding.", "extension."):  # whose other fields are options
            problems.append(configuration.unknown(f"{prefix}{name}", names))
    return problems


def _together(values: Mapping) -> list[str]:
    """Mistakes in numbers that depend on each other."""
    batch, pieces = values["batch_size"], values["accumulate"]
    problems = []
    if _is_whole(batch) and _is_whole(pieces) and pieces >= 1 and batch % pieces:
        problems.append(f"batch_size must be a multiple of accumulate = {pieces}; got {batch}")
    return problems


def _model(values: Mapping) -> list[str]:
    decoder = neighbours.models().config
    if values["vocab"] is None:  # that of the tokenizer
        values = {**values, "vocab": decoder.Config.vocab}
    return decoder.mistakes(values, "model.")


def _is_whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names(encoding: Mapping, extension: Mapping) -> list[str]:
    problems = fields.mistakes(configuration.Extension, extension, "extension.")
    try:
        known("encoding", encoding["name"], encodings())
    except ValueError as error:
        problems.append(str(error))
    try:
        composition.parts(extension["name"])
    except ValueError as error:
        problems.append(f"extension.name: {error}")
    scale = extension["scale"]
    if isinstance(scale, int | float) and 0 < scale < 1:
        problems.append(f"extension.scale must be at least 1; got {scale}")
    return problems


def _data(data) -> list[str]:
    if data.tokens:
        return _tokens(data)
    if data.mixture:
        return _mixture(data)
    if data.source not in SOURCES:
        return fields.mistakes(configuration.Data, data.to_dict(), "data.")
    problems = _unread(data, data.source)
    data = lineage.with_unset(data)
    values = data.to_dict()
    problems += fields.mistakes(configuration.Data, values, "data.")
    if data.source in read_by()["path"].sources and not data.path:
        problems.append(f"data.path must say what to read for data.source={data.source}")
    problems += _held_out(data)
    if data.answers_only and data.source != "synthetic":
        problems.append("data.answers_only has no effect: only synthetic text marks its answers")
    if data.source == "synthetic" and data.tokenizer != "bytes":
        problems.append("data.tokenizer must be 'bytes' for synthetic data")
    fractions = (data.valid_fraction, data.choose_fraction)
    if all(isinstance(f, int | float) for f in fractions) and not sum(fractions) < 1:
        problems.append(
            "data.valid_fraction and data.choose_fraction must leave text to train on, their sum "
            f"below 1; got {data.valid_fraction} + {data.choose_fraction}"
        )
    if not (_exists(data.tokenizer) or may_be_of_hub(str(data.tokenizer))):
        problems.append(
            "data.tokenizer must be 'bytes', a tokenizer.json, a folder with one or with "
            "vocab.json and merges.txt, or a name of the Hugging Face Hub such as gpt2; there "
            f"is no {_short(data.tokenizer)!r}"
        )
    return problems


def _missing_files(data) -> list[str]:
    """Patterns of files that match nothing."""
    return [
        f"data.{name}: nothing matches {pattern!r}"
        for name in ("path", "valid_path")
        for pattern in words(data[name] or "")
        if data.source in FILES and not glob.glob(str(Path(pattern).expanduser()), recursive=True)
    ]


def _held_out(data) -> list[str]:
    """A field that says which documents are held out, beside another."""
    usual = configuration.training().data.valid_fraction
    named = next((name for name in ("valid_path", "valid_split") if data[name]), None)
    problems = []
    if named and data.valid_fraction != usual:
        problems.append(
            f"data.valid_fraction = {data.valid_fraction!r} has no effect beside data.{named}, "
            "which names what is held out"
        )
    if data.valid_split and data.valid_split == data.split:
        problems.append(
            f"data.valid_split must be another split than data.split; both are {data.split!r}"
        )
    return problems


def _mixture(data) -> list[str]:
    """What is wrong with its shares, with a text of it, or with a field that none of them reads."""
    try:
        parts = [lineage.part_of(data, name) for name in configuration.shares(data.mixture)]
    except ValueError as error:
        return [f"data.mixture: {error}"]
    problems = [
        f"data.{name} = {data[name]!r} has no effect: no text of data.mixture reads it"
        for name in read_by()
        if data[name] not in (None, "")
        and name != "task"
        and all(part[name] in (None, "") for part in parts)
    ]
    usual = configuration.training().data.source
    problems += [
        f"data.{name} = {data[name]!r} has no effect beside data.mixture, which names its texts"
        for name in ("source", "task")
        if data[name] not in (None, usual)
    ]
    if data.answers_only and all(part.source != "synthetic" for part in parts):
        problems.append(
            "data.answers_only has no effect: no text of data.mixture marks its answers"
        )
    return problems + list(dict.fromkeys(line for part in parts for line in _data(part)))


def _tokens(data) -> list[str]:
    problems = [
        f"data.{name} = {data[name]!r} has no effect with data.tokens: its text was read, cut "
        "and split when the tokens were made"
        for name in sorted(set(data) - {"tokens", *configuration.beside_tokens()})
        if data[name] is not None
    ]
    return problems + _folder_of_tokens(data.tokens)


def _folder_of_tokens(folder) -> list[str]:
    if _exists(f"{folder}/corpus.json"):
        return []
    return [
        "data.tokens must be a folder written by scripts/prepare_data.py --tokens_out; there is "
        f"no corpus.json in {_short(folder)!r}"
    ]


def _exists(path) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # a name that is too long, or no name
        return False


def _short(text, most: int = 200) -> str:
    return text if len(str(text)) <= most else f"{str(text)[:most]}..."


def _unread(data, source: str) -> list[str]:
    """A field that the source does not read would have no effect."""
    problems = []
    task = data.get("task") or "copy"
    for name, readers in read_by().items():
        if name not in data or data[name] in (None, ""):
            continue
        if source not in readers.sources:
            problems.append(
                f"data.{name} = {data[name]!r} has no effect with data.source={source}; it is for "
                f"data.source={' or '.join(readers.sources)}"
            )
        elif readers.tasks and task not in readers.tasks and task in registry.tasks():
            problems.append(
                f"data.{name} = {data[name]!r} has no effect with data.task={task}; it is for "
                f"data.task={' or '.join(readers.tasks)}"
            )
    return problems


def _source(config) -> list[str]:
    """Mistakes in starting from the run that `init_from` names."""
    try:
        lines = unlike(config, lineage.read(Path(config.init_from)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [lineage.no_source(config, error)]
    return [f"init_from: {line}; give the model and the encoding of that run" for line in lines]


def mistakes_in_workdir(workdir: str | Path) -> list[str]:
    """What is wrong with the name of a run's folder, which begins the rows of curves.csv."""
    name = Path(workdir).resolve().name
    if not name.startswith(FORMULA):
        return []
    return [
        f"--workdir must not end in a name that begins with {' '.join(FORMULA)}, which spreadsheet "
        f"programs compute as a formula in eval/curves.csv; rename {name!r}"
    ]


def validate_evaluation(config) -> list[str]:
    """Every mistake in the configuration of an evaluation."""
    problems = _structure(config.to_dict(), configuration.evaluation().to_dict())
    if problems:
        return problems
    values = config.to_dict()
    problems = fields.mistakes(configuration.Evaluation, values)
    problems += fields.mistakes(configuration.EvaluationData, values["data"], "data.")
    name = str(config.name)
    if re.fullmatch(r"[\w.+-]{0,80}", name) is None or name.startswith(FORMULA):
        problems.append(
            "name must be letters, digits and . + - _, 80 at most, and begin with neither + nor -; "
            f"got {config.name!r}"
        )
    if config.lengths and config.multiples != configuration.evaluation().multiples:
        problems.append(
            f"lengths = {config.lengths!r} and multiples = {config.multiples!r} are "
            "mutually exclusive; give one"
        )
    problems += _words(config) + _text(config.data)
    problems += fields.mistakes(configuration.EvaluationWandb, values["wandb"], "wandb.")
    return problems


def _words(config) -> list[str]:
    """Mistakes in the words of the lists."""
    problems = []
    for rule, text in (
        (
            lambda word: token_count("each of lengths", composition.value(word), at_least=2),
            config.lengths or "2",
        ),
        (lambda word: positive("each of multiples", composition.value(word)), config.multiples),
        (lambda word: word == "all" or composition.parts(word), config.extensions),
        (lambda word: known("protocol", word, protocols()), config.protocols),
    ):
        for word in words(text) or ["nothing"]:
            try:
                rule(word)
            except ValueError as error:
                problems.append(str(error))
    return problems


def _text(data) -> list[str]:
    """Mistakes in naming a text other than the run's own."""
    if data.tokens:
        return _folder_of_tokens(data.tokens) + [
            f"data.{name} = {data[name]!r} has no effect with data.tokens, which names the text"
            for name in ("source", "path", "field", "split")
            if data[name]
        ]
    problems = []
    others = [*configuration.mixed_sources(), *registry.tasks()]  # tasks: of the run's mixture
    if data.source and data.source not in others:
        listed = ", ".join(map(repr, others))
        problems.append(f"data.source must be one of {listed}; got {data.source!r}")
    if data.part != "held_out" and data.source:
        problems.append(
            f"data.part = {data.part!r} is a part of the run's own text and has no effect with "
            f"data.source={data.source}"
        )
    if bool(data.path) != (data.source in read_by()["path"].sources):
        problems.append(
            f"data.path goes with data.source={' or '.join(read_by()['path'].sources)}; got "
            f"source={data.source!r}, path={data.path!r}"
        )
    fields_of_rows = {name: value for name, value in data.items() if name != "path"}
    return problems + _unread(fields_of_rows, data.source or "'' (the run's own text)")
