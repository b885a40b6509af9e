"""Diagnostics of position in one run: tables in its eval/diagnose, pictures in its plots."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax import terminal
from posenc_jax.config import Evaluation
from posenc_jax.data.batches import with_prefix
from posenc_jax.data.requested import EvaluationData
from posenc_jax.encoding import Encoding
from posenc_jax.errors import ConfigError
from posenc_jax.evaluation import diagnostics, evaluate, methods, selection
from posenc_jax.evaluation.sums import label
from posenc_jax.plots import attention as of_attention
from posenc_jax.plots import encodings as of_encodings
from posenc_jax.plots import style
from posenc_jax.runs.subject import Subject, load_subject


def diagnose(selected: str, documents: int, step: int | None, path: str = "") -> list[Path]:
    """Write the tables and pictures of RUN[@METHODS][@LENGTH]; return their paths.

    `path` names files to read instead of the run's held-out documents.
    """
    run, names, length = selection.parse(selected)
    wanted = ",".join(names) or "none,yarn"
    wrong = methods.mistakes(wanted)
    if wrong:
        raise ConfigError("; ".join(wrong))
    subject = load_subject(run, step)
    methods.check_some_fit(wanted, methods.left_out(wanted, subject.plain), subject.plain)
    length = length or 8 * subject.trained
    encodings = _reaching(length, wanted, subject)
    if not encodings:
        raise ConfigError(f"no method of {wanted} reaches {length} tokens")
    rows = rows_of(subject, documents, length, path)
    tables, plots = run / "eval" / "diagnose", run / "plots"
    for folder in (tables, plots):
        folder.mkdir(parents=True, exist_ok=True)
    return [
        *_spectrum(encodings, subject.original, tables, plots),
        *_bias(subject.parts.encoding, subject.trained, length, tables, plots),
        *_attention(subject, encodings, rows, tables, plots),
    ]


def rows_of(
    subject: Subject, documents: int, length: int, path: str = ""
) -> np.ndarray:  # [documents, length]
    """A row of each held-out document, or of each of the files that `path` names."""
    data = EvaluationData(source="text", path=path) if path else EvaluationData()
    config = Evaluation(documents=max(2, documents), windows=1, data=data)
    text = evaluate.choose(config, subject, [length])
    places = text.starts[:, None] + np.arange(length)
    return with_prefix(text.split.tokens[places].astype("int32"), subject.prefix)


def _reaching(length: int, wanted: str, subject: Subject) -> dict[str, Encoding]:
    """Encodings of the requested methods that reach the length, by name."""
    scale = length / subject.original  # over the L of the formulas
    encodings = {}
    for method in methods.methods(wanted, subject.plain, scale):
        encoding = method.applied(subject.plain, subject.parts.encoding, scale)
        if encoding.reach is None or encoding.reach >= length:
            facts = {"extension": method.name, "scale": method.scale, "window": method.limit}
            encodings[label(facts)] = encoding.windowed(method.limit)
    return encodings


def _spectrum(
    encodings: Mapping[str, Encoding], trained: int, tables: Path, plots: Path
) -> list[Path]:
    rotary = {name: diagnostics.rotary(encoding) for name, encoding in encodings.items()}
    ropes = {name: rope for name, rope in rotary.items() if rope is not None}
    if not ropes:
        return []
    lines = (
        (name, head, pair, float(wave), float(turns))
        for name, rope in ropes.items()
        for head, (waves, all_turns) in enumerate(zip(*diagnostics.spectrum(rope), strict=True))
        for pair, (wave, turns) in enumerate(zip(waves, all_turns, strict=True))
    )
    table = _write(tables / "spectrum.csv", "extension,table,pair,wavelength,turns_in_L", lines)
    return [table, style.save(of_encodings.spectrum(ropes, trained), plots / "spectrum.png")]


def _bias(encoding: Encoding, trained: int, length: int, tables: Path, plots: Path) -> list[Path]:
    first = encoding.layer(0)
    curves = {
        n: diagnostics.bias_by_distance(first, n)
        for n in (trained, length)
        if encoding.reach is None or n <= encoding.reach
    }
    biases = {n: curve for n, curve in curves.items() if curve is not None}
    if len(biases) < len(curves):
        return []
    lines = (
        (n, head, distance, float(value))
        for n, curve in biases.items()
        for head, row in enumerate(curve)
        for distance, value in enumerate(row)
    )
    table = _write(tables / "bias.csv", "length,head,distance,bias", lines)
    layer = "" if encoding.depth is None else "layer 0, "
    return [table, style.save(of_attention.bias(biases, trained, layer), plots / "bias.png")]


def _attention(
    subject: Subject, encodings: Mapping[str, Encoding], rows: np.ndarray, tables: Path, plots: Path
) -> list[Path]:
    model = subject.parts.model
    results = {
        name: diagnostics.attention(model, encoding, rows, subject.trained)
        for name, encoding in encodings.items()
    }
    lines = (
        (name, layer, head, place + 1, *(float(values[layer, head, place]) for values in result))
        for name, result in results.items()
        for layer, head, place in np.ndindex(result.first.shape)
    )
    header = "extension,layer,head,position,beyond_L,entropy,on_token_0"
    table = _write(tables / "attention.csv", header, lines)
    weights = {
        name: diagnostics.on_first(result.first, subject.trained)
        for name, result in results.items()
    }
    for name, weight in weights.items():
        terminal.say(f"{name}: {diagnostics.sink_in_words(weight)}")
    lines = (
        (name, layer, float(heads.mean()), float(heads.max()))
        for name, weight in weights.items()
        for layer, heads in enumerate(weight)
    )
    by_layer = _write(tables / "token_0.csv", "extension,layer,mean_of_heads,largest_head", lines)
    picture = of_attention.attention(results, subject.trained)
    return [table, by_layer, style.save(picture, plots / "attention.png")]


def _write(path: Path, header: str, lines: Iterable[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(lines)
    return path
