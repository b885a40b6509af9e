"""Plan the cells of an evaluation: extensions, protocols, lengths, and the windows they read."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict
from tqdm import tqdm

from posenc_jax import composition, extensions
from posenc_jax.attention import ring
from posenc_jax.config import Evaluation, Training, building, schema
from posenc_jax.config.check import mistakes_in_evaluation
from posenc_jax.config.resolve import reached, trained_length
from posenc_jax.config.schema import words
from posenc_jax.data import texts
from posenc_jax.data.corpora import Corpus, Mixture
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import methods, protocols, windows
from posenc_jax.evaluation.cells import cell_key, model_key, tree_key
from posenc_jax.evaluation.methods import Method, check_some_fit, left_out
from posenc_jax.evaluation.protocols import Protocol, Reading
from posenc_jax.evaluation.windows import Plan, Text
from posenc_jax.runs.checkpoints import total_digest
from posenc_jax.runs.subject import Subject
from posenc_jax.runtime import backend
from posenc_jax.runtime.errors import ConfigError

READING_COLUMNS = ("chance", "ceiling", "orderless", "older", "separation")
OPTIONS = ("stride", "last")  # columns of a protocol's span


class Cell(NamedTuple):
    facts: dict  # columns of its row
    encoding: Encoding
    reading: Reading
    pass_key: str  # shared by cells that read windows of one length with the same numbers
    key: str

    @property
    def plan(self) -> Plan:
        return self.reading.plan

    @property
    def text(self) -> Text:
        return self.reading.text


def load(recipe: ConfigDict | Mapping[str, Any], *, more: Sequence[str] = ()) -> Evaluation:
    """The typed configuration of an evaluation, or a ConfigError with every mistake.

    `more` are mistakes that a program found itself.
    """
    config, problems = read(recipe)
    if config is None or more:
        raise ConfigError(*more, *problems)
    return config


def read(recipe: ConfigDict | Mapping[str, Any]) -> tuple[Evaluation | None, list[str]]:
    """The typed configuration of an evaluation, or every mistake in it."""
    values = recipe.to_dict() if isinstance(recipe, ConfigDict) else recipe
    problems = mistakes_in_evaluation(values)
    if isinstance(values.get("extensions"), str):
        problems += methods.mistakes(values["extensions"])
    if problems:
        return None, problems
    config = schema.evaluation_from_fields(values)
    problems = protocols.mistakes(config)
    return (None if problems else config), problems


def check(config: Evaluation, run: Training) -> None:
    """Refuse an evaluation that cannot fit this run, whatever its text."""
    plain = building.plain(run, jax.random.key(0))
    lengths = lengths_of(config, trained_length(run))
    check_some_fit(config.extensions, left_out(config.extensions, plain), plain)
    ratio = lengths[-1] / plain.train_length
    for method in methods.methods(config.extensions, plain, ratio):  # which checks their options
        check_cut(config, method.applied(plain, plain, ratio))


def check_cut(config: Evaluation, encoding: Encoding) -> None:
    """Refuse an encoding that reads whole rows, where devices share them."""
    if config.sequence > 1:
        try:
            ring.check(encoding)
        except ValueError as error:
            raise ConfigError(str(error)) from error


def check_readable(config: Evaluation, run: Training, corpus: Corpus | Mixture) -> None:
    """Before training: refuse held-out documents that are too short for the evaluation."""
    split = texts.own_split(config.data, run.data.source, corpus)
    if split is not None:
        longest = max(lengths_of(config, trained_length(run)))
        windows.choose(windows.in_stretches(split, longest), longest)


def some_fit(text: str, run: Training) -> bool:
    """True if any extension of a list fits the encoding of a run."""
    return set(words(text)) > set(left_out(text, building.plain(run, jax.random.key(0))))


def unfit(config: Evaluation, subject: Subject) -> dict[str, str]:
    """The extensions asked for that do not fit the run, each with the reason; not all of them. The
    default list is for every encoding, and asks for those that fit."""
    if config.extensions == Evaluation.extensions:
        return {}
    reasons = left_out(config.extensions, subject.plain)
    if not subject.extensible:
        reason = "the run was trained with a resampled table"
        reasons |= {word: reason for word in words(config.extensions) if word != "none"}
    check_some_fit(config.extensions, reasons, subject.plain)
    return reasons


def lengths_of(config: Evaluation, trained: int) -> list[int]:
    multiples = {float(word) for word in words(config.multiples)}
    lengths = sorted({round(multiple * trained) for multiple in multiples})
    if config.lengths:
        lengths = sorted({composition.value(word) for word in words(config.lengths)})
    if lengths[0] < 2:
        raise ConfigError(f"every length must be at least 2 tokens; multiples give {lengths}")
    for protocol in protocols.asked(config):
        protocol.check(lengths, protocol.span(config, trained, lengths), trained)
    return lengths


def wanted(config: Evaluation, subject: Subject, lengths: list[int]) -> int:
    """Number of longest windows that give every requested protocol enough targets."""
    headline = protocols.find(protocols.HEADLINE)
    needed = dict.fromkeys([headline, *protocols.asked(config)])
    return max(p.wanted(p.span(config, subject.trained, lengths)) for p in needed)


def plan(config: Evaluation, subject: Subject, text: Text, lengths: list[int]) -> list[Cell]:
    """The requested cells that can be expressed, each with its encoding and windows."""
    largest = text.longest / subject.original
    requested = methods.methods(
        config.extensions if subject.extensible else "none", subject.plain, largest
    )
    _tell_short_scales(requested, largest)
    baseline = [Method("none", None, subject.trained)] if config.window else []
    passes = passes_of(config, subject, text, lengths)
    model, machine = model_key(subject.parts.model), backend.machine()
    weights = total_digest(subject.parts.params())[:16]
    common = facts_of(subject, text.name) | {"weights": weights, **machine}
    cells: list[Cell] = []
    skipped: dict[str, None] = {}  # each line once
    for length in lengths:
        for method in requested + baseline:
            try:
                encoding = _encoding(method, subject, length)
            except ValueError as error:
                skipped[str(error)] = None
                continue
            check_cut(config, encoding)
            numbers = tree_key(encoding)
            for pass_ in passes[length]:
                protocol, span, reading = pass_
                plan, read = reading.plan, reading.text
                limit = method.limit if method.limit and method.limit < plan.length else None
                pass_key = cell_key(
                    model=model, encoding=numbers, limit=limit, length=plan.length, **machine
                )
                inputs = dict(text=read.hash, trained=subject.trained, targets=reading.token_hash)
                if reading.part:
                    inputs["part"] = reading.part
                key = cell_key(passing=pass_key, protocol=protocol.name, span=span, **inputs)
                facts = common | _facts(method, length, pass_)
                cells.append(Cell(facts, encoding.windowed(limit), reading, pass_key, key))
    for line in skipped:
        tqdm.write(line)
    if not cells:
        raise ConfigError(
            f"nothing is left to evaluate with extensions={config.extensions!r} and multiples="
            f"{config.multiples!r}; extensions that fit: "
            f"{', '.join(extensions.fitting(subject.plain)) if subject.extensible else 'none'}"
        )
    return cells


def _tell_short_scales(requested: list[Method], largest: float) -> None:
    short = [
        composition.with_scale(method.name, method.scale)
        for method in requested
        if method.scale is not None and method.scale < largest
    ]
    if short:
        tqdm.write(
            f"{', '.join(short)}: the scale is below {largest:g}, the longest window over L, so "
            f"positions beyond scale x L are untrained; use {largest:g} or more"
        )


def _encoding(method: Method, subject: Subject, length: int) -> Encoding:
    """The encoding that reads a length; a ValueError says why the method is skipped there."""
    ratio = length / subject.original
    try:
        encoding = method.applied(subject.plain, subject.parts.encoding, ratio)
    except ValueError as error:
        raise ValueError(f"{method.name} is skipped: {error}") from error
    if encoding.reach is not None and length > encoding.reach:
        plain = subject.plain
        name = f"{plain.name} with {method.name}" if method.name != "none" else plain.name
        reach = f"{name} reaches {encoding.reach} positions"
        raise ValueError(f"length {length} is skipped: {reach}; {plain.remedy}")
    return encoding


class Pass(NamedTuple):
    """One reading of a protocol, with the protocol and its span."""

    protocol: Protocol
    span: int | None
    reading: Reading


def passes_of(
    config: Evaluation, subject: Subject, text: Text, lengths: list[int]
) -> dict[int, list[Pass]]:
    """Passes of each length, in the order of rows."""
    passes: dict[int, list[Pass]] = {length: [] for length in lengths}
    for protocol in protocols.asked(config):
        protocol_text = protocol.text(text, subject, lengths, config)
        span = protocol.span(config, subject.trained, lengths)
        for length in lengths:
            for reading in protocol.readings(protocol_text, length, span, subject.trained):
                passes[length].append(Pass(protocol, span, reading))
    return passes


def facts_of(subject: Subject, evaluation: str) -> dict:
    """Columns of all rows of a checkpoint."""
    return {
        "run": subject.name,
        "encoding": subject.plain.name,
        "train_length": subject.trained,
        "seed": subject.seed,
        "step": subject.step,
        "evaluation": evaluation,
    }


def _facts(method: Method, length: int, pass_: Pass) -> dict:
    protocol, span, reading = pass_
    return {
        "extension": method.name,
        "scale": method.scale,
        "window": method.limit,
        "length": length,
        "protocol": protocol.name,
        "token_hash": reading.token_hash,
        "text": reading.text.source,
        "data": reading.text.data,
        "part": reading.part,
        "unit": reading.text.kind,
        **{name: reading.facts.get(name) for name in READING_COLUMNS},
        **{name: span if protocol.option == name else None for name in OPTIONS},
    }


def extended_encoding(
    subject: Subject, extension: str, max_length: int | None
) -> tuple[Encoding, int]:
    """The encoding of a run with an extension, and the length of the longest row it reads.

    An extension that depends on the length read is applied once, for that length.
    """
    if len(words(extension)) != 1 or extension == "all":
        raise ConfigError(f"give one extension; got {extension!r}")
    wrong = methods.mistakes(extension)
    if wrong:
        raise ConfigError("; ".join(wrong))
    unfit(Evaluation(extensions=extension), subject)
    scales = [part.scale for _, part in extensions.named(extension) if part.scale is not None]
    if max_length is None and extension != "none" and not scales:
        raise ConfigError(f"extension {extension!r} has no scale; give a maximum length")
    if max_length is None:
        max_length = reached(scales[0], subject.original) if scales else subject.trained
    ratio = max_length / subject.original
    (method,) = methods.methods(extension, subject.plain, ratio)
    encoding = method.applied(subject.plain, subject.parts.encoding, ratio)
    if encoding.reach is not None and max_length > encoding.reach:
        raise ConfigError(
            f"encoding {subject.plain.name!r} with extension {extension!r} reaches "
            f"{encoding.reach} positions; the maximum length is {max_length}"
        )
    return encoding.windowed(method.limit), max_length
