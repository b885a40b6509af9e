"""Plan the cells of an evaluation: extensions, protocols, lengths, and the windows they read."""

from typing import Any, NamedTuple

from tqdm import tqdm

from posenc_jax import composition, extensions
from posenc_jax.config import Evaluation
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import methods, protocols
from posenc_jax.evaluation.cells import cell_key, model_key, tree_key
from posenc_jax.evaluation.check import refuse_uncut
from posenc_jax.evaluation.methods import Method
from posenc_jax.evaluation.windows import Reading, Text
from posenc_jax.runs.subject import Subject
from posenc_jax.runtime import backend
from posenc_jax.runtime.errors import ConfigError


class Planned(NamedTuple):
    """A cell to compute."""

    facts: dict[str, Any]  # columns of its row
    encoding: Encoding
    reading: Reading
    pass_key: str  # shared by cells that read windows of one length with the same numbers
    key: str


def wanted(config: Evaluation, subject: Subject, lengths: list[int]) -> int:
    """Number of longest windows that give every requested protocol enough targets."""
    headline = protocols.find(protocols.HEADLINE)
    needed = dict.fromkeys([headline, *protocols.asked(config)])
    return max(p.wanted(p.span(config, subject.trained, lengths)) for p in needed)


def plan(config: Evaluation, subject: Subject, text: Text, lengths: list[int]) -> list[Planned]:
    """The requested cells that can be expressed, each with its encoding and windows."""
    largest = text.longest / subject.original
    requested = methods.methods(
        config.extensions if subject.extensible else "none", subject.plain, largest
    )
    _tell_short_scales(requested, largest)
    baseline = [Method("none", None, subject.trained)] if config.window else []
    read = readings(config, subject, text, lengths)
    model = model_key(subject.parts.model.config, subject.digests_of_model)
    machine = backend.machine()
    common = facts_of(subject, text.name) | {"weights": subject.weights, **machine}
    cells: list[Planned] = []
    skipped: dict[str, None] = {}  # each line once
    for length in lengths:
        for method in requested + baseline:
            try:
                encoding = _encoding(method, subject, length)
            except ValueError as error:
                skipped[str(error)] = None
                continue
            refuse_uncut(config, encoding)
            numbers = tree_key(encoding)
            of_method = {"extension": method.name, "scale": method.scale, "window": method.limit}
            for facts, span, reading in read[length]:
                within = method.limit if method.limit and method.limit < reading.length else None
                passing = cell_key(
                    model=model, encoding=numbers, limit=within, length=reading.length, **machine
                )
                inputs = dict(text=reading.text.hash, trained=subject.trained)
                inputs |= dict(targets=reading.token_hash, protocol=facts["protocol"], span=span)
                if reading.part:
                    inputs["part"] = reading.part
                key = cell_key(passing=passing, **inputs)
                own = common | of_method | {"length": length} | facts
                cells.append(Planned(own, encoding.windowed(within), reading, passing, key))
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


def readings(
    config: Evaluation, subject: Subject, text: Text, lengths: list[int]
) -> dict[int, list[tuple[dict[str, Any], int | None, Reading]]]:
    """The readings of each length in the order of rows, each with the columns that it fills and the
    span of its protocol."""
    found: dict[int, list[tuple[dict[str, Any], int | None, Reading]]] = {n: [] for n in lengths}
    for protocol in protocols.asked(config):
        protocol_text = protocol.text(text, subject, lengths, config)
        span = protocol.span(config, subject.trained, lengths)
        own = {} if protocol.option is None else {protocol.option: span}
        for length in lengths:
            for reading in protocol.readings(protocol_text, length, span, subject.trained):
                facts = {
                    "protocol": protocol.name,
                    "token_hash": reading.token_hash,
                    "text": reading.text.source,
                    "data": reading.text.data,
                    "part": reading.part,
                    "unit": reading.text.kind,
                    **reading.facts,
                    **own,
                }
                found[length].append((facts, span, reading))
    return found


def facts_of(subject: Subject, evaluation: str) -> dict[str, Any]:
    """Columns of all rows of a checkpoint."""
    return dict.fromkeys(protocols.facts()) | {
        "run": subject.name,
        "encoding": subject.plain.name,
        "train_length": subject.trained,
        "seed": subject.seed,
        "step": subject.step,
        "evaluation": evaluation,
    }
