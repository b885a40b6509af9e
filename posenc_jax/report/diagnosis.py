"""Diagnostics of position in one run: tables in its eval/diagnose, pictures in its plots; and
pictures of every encoding, as initialised or as learned."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posenc_jax import display, schemes
from posenc_jax.config import Evaluation
from posenc_jax.data.batches import with_prefix
from posenc_jax.data.sources import EvaluationData
from posenc_jax.display import Table, decimal
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.evaluation import compare, diagnostics, evaluate, knockout, methods
from posenc_jax.evaluation.cells import label
from posenc_jax.layers import overrides
from posenc_jax.plots import encodings as pictures
from posenc_jax.plots import style
from posenc_jax.plots.answers import knocked_out
from posenc_jax.runs.subject import Subject, load_subject
from posenc_jax.runtime import terminal
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import write_csv
from posenc_jax.schemes.rope import RoPE


def diagnose(selected: str, documents: int, step: int | None, path: str = "") -> list[Path]:
    """Write the tables and pictures of RUN[@METHODS][@LENGTH]; return their paths.

    `path` names files to read instead of the run's held-out documents.
    """
    run, subject, wanted, length = _selected(selected, step)
    encodings = _reaching(length, wanted, subject)
    if not encodings:
        raise ConfigError(f"no method of {wanted} reaches {length} tokens")
    rows = rows_of(subject, documents, length, path)
    tables, plots = run / "eval" / "diagnose", run / "plots"
    tables.mkdir(parents=True, exist_ok=True)
    return [
        *_spectrum(encodings, subject.original, tables, plots),
        *_bias(subject.parts.encoding, subject.trained, length, tables, plots),
        *_attention(subject, encodings, rows, tables, plots),
    ]


def _selected(selected: str, step: int | None) -> tuple[Path, Subject, str, int]:
    """The run, the methods that are wanted of it, and the length, of RUN[@METHODS][@LENGTH]."""
    run, names, length = compare.parse_selection(selected)
    wanted = ",".join(names) or "none,yarn"
    wrong = methods.mistakes(wanted)
    if wrong:
        raise ConfigError("; ".join(wrong))
    subject = load_subject(run, step)
    methods.check_some_fit(wanted, methods.left_out(wanted, subject.plain), subject.plain)
    return run, subject, wanted, length or 8 * subject.trained


def knock_out(selected: str, step: int | None) -> list[Path]:
    """Hide keys from queries at L and at the length of RUN[@METHODS][@LENGTH], whose text sets
    names to values; write the table and the picture of the order that is left."""
    run, subject, wanted, length = _selected(selected, step)
    knockout.check(subject.plain)
    lengths = sorted({subject.trained, length})
    text = evaluate.choose(Evaluation(protocols="last_of_two"), subject, lengths)
    rows = []
    for length in lengths:
        pairs = knockout.pairs_of(text, length, subject.trained)
        for name, encoding in _reaching(length, wanted, subject).items():
            counts = knockout.counts(subject.parts.model, encoding, pairs)
            rows += [{"extension": name, "length": length} | row for row in counts]
    shown: dict[str, dict[str, float | None]] = {}
    for row in rows:
        name = f"{row['extension']} at {row['length']}"
        shown.setdefault(name, {})[row["hidden"]] = row["order"]
    hidden = list(dict.fromkeys(row["hidden"] for row in rows))
    body = [[name, *(decimal(own.get(one)) for one in hidden)] for name, own in shown.items()]
    caption = "order, where this is hidden: 0.5 without order"
    terminal.say(display.text(Table(caption, ["", *hidden], body)))
    folder = run / "eval" / "diagnose"
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "knockout.csv", list(rows[0]), rows)
    picture = style.save(knocked_out(shown), run / "plots" / "knockout.png")
    return [folder / "knockout.csv", picture]


def rows_of(
    subject: Subject, documents: int, length: int, path: str = ""
) -> np.ndarray:  # [documents, length]
    """A row of each held-out document, or of each of the files that `path` names."""
    data = EvaluationData(source="text", path=path) if path else EvaluationData()
    config = Evaluation(documents=max(2, documents), windows=1, data=data)
    text = evaluate.choose(config, subject, [length])
    places = text.starts[:documents, None] + np.arange(length)
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
    lines = _lines({name: diagnostics.spectrum(rope) for name, rope in ropes.items()})
    table = _write(tables / "spectrum.csv", "extension,table,pair,wavelength,turns_in_L", lines)
    return [table, style.save(pictures.spectrum(ropes, trained), plots / "spectrum.png")]


def _bias(encoding: Encoding, trained: int, length: int, tables: Path, plots: Path) -> list[Path]:
    lengths = [n for n in (trained, length) if encoding.reach is None or n <= encoding.reach]
    curves = {n: diagnostics.bias_by_distance(encoding.layer(0), n) for n in lengths}
    biases = {n: curve for n, curve in curves.items() if curve is not None}
    if not biases:
        return []
    lines = _lines({n: [curve] for n, curve in biases.items()})
    table = _write(tables / "bias.csv", "length,head,distance,bias", lines)
    layer = "" if encoding.depth is None else "layer 0, "
    return [table, style.save(pictures.bias(biases, trained, layer), plots / "bias.png")]


def _attention(
    subject: Subject, encodings: Mapping[str, Encoding], rows: np.ndarray, tables: Path, plots: Path
) -> list[Path]:
    results = {
        name: diagnostics.attention(subject.parts.model, encoding, rows, subject.trained)
        for name, encoding in encodings.items()
    }
    lines = (
        (name, layer, head, place + 1, *values)
        for name, layer, head, place, *values in _lines(results)
    )
    header = "extension,layer,head,position,beyond_L,entropy,on_token_0"
    table = _write(tables / "attention.csv", header, lines)
    by_layer = {}
    for name, result in results.items():
        weight = diagnostics.on_first(result.first, subject.trained)
        terminal.say(f"{name}: {diagnostics.sink_in_words(weight)}")
        by_layer[name] = weight.mean(axis=1), weight.max(axis=1)
    header = "extension,layer,mean_of_heads,largest_head"
    on_first = _write(tables / "token_0.csv", header, _lines(by_layer))
    picture = pictures.attention(results, subject.trained)
    return [table, on_first, style.save(picture, plots / "attention.png")]


def _lines(by_name: Mapping[Any, Sequence[np.ndarray]]) -> Iterator[tuple]:
    """A line per name and place of its arrays, which have one shape: both, and the values there."""
    for name, arrays in by_name.items():
        for place in np.ndindex(arrays[0].shape):
            yield name, *place, *(float(values[place]) for values in arrays)


def _write(path: Path, header: str, lines: Iterable[Sequence[Any]]) -> Path:
    columns = header.split(",")
    write_csv(path, columns, (dict(zip(columns, line, strict=True)) for line in lines))
    return path


ROTARY = "rope"
GATED = "fox"
GATE_TOKENS = 80  # for which gates are drawn
MOST_ALONG_MAP = 512  # tokens along a map of distances; with more the first few would be invisible


class Portraits:
    """Encodings at `dims`, taken from a run where one is given, without its extension."""

    def __init__(self, dims: Dims, folders: Sequence[Path]):
        self.dims = dims
        self.runs: dict[str, tuple[Path, Subject]] = {}
        for folder in folders:
            subject = load_subject(folder)
            name, rope = subject.plain.name, diagnostics.rotary(subject.plain)
            if name in self.runs:
                raise ConfigError(
                    f"{folder}: a second run with {name!r}; give one run per encoding"
                )
            if name == ROTARY and rope is not None and np.ndim(rope.inv_freq) > 1:
                raise ConfigError(
                    f"{folder}: its frequencies differ by head or layer; only shared ones can be "
                    "drawn"
                )
            self.runs[name] = folder, subject
            if name not in (ROTARY, GATED) and not self.has_bias(name):
                terminal.warn(f"{folder}: {name!r} has no picture")

    def draw(self, out: Path, scale: float) -> list[Path]:
        """Draw all pictures; return the files written."""
        rope, far = self.of(ROTARY), int(scale * self.dims.train_length)
        assert isinstance(rope, RoPE)
        longest = min(max(far, 8), MOST_ALONG_MAP)
        figures = {
            "rope_wavelengths": pictures.wavelengths(rope, scale),
            "biases": pictures.biases(self.titled(*filter(self.has_bias, schemes.names())), far),
            "remapped": pictures.remapped(longest, max(8, round(longest / scale))),
        }
        if GATED in self.runs and overrides(self.of(GATED), "read"):
            figures["gates"] = pictures.gates(*self.gates(), *self.titled(GATED))
        return [style.save(figure, out / f"{name}.png") for name, figure in figures.items()]

    def of(self, name: str) -> Encoding:
        """An encoding; of a run that has one per layer, that of the first layer."""
        if name not in self.runs:
            return schemes.build(name, self.dims, key=jax.random.key(0))
        first = self.runs[name][1].plain.layer(0)
        rope = diagnostics.rotary(first) if name == ROTARY else None  # without its sink
        return first if rope is None else rope

    def has_bias(self, name: str) -> bool:
        return diagnostics.bias_by_distance(self.of(name), 2) is not None

    def titled(self, *names: str) -> dict[str, Encoding]:
        """Encodings by title; a title names the run that trained them."""
        encodings = {}
        for name in names:
            encoding, run = self.of(name), None
            if name in self.runs:
                folder, subject = self.runs[name]
                run = subject.name if subject.plain.depth is None else f"{subject.name}, layer 0"
            encodings[pictures.title(encoding, run)] = encoding
        return encodings

    def gates(self) -> tuple[np.ndarray, list[str]]:
        """Forget gates over a text, and its tokens as text."""
        _, subject = self.runs[GATED]
        row = rows_of(subject, 1, subject.trained)[0, :GATE_TOKENS]
        decode = subject.tokenizer.decode
        letters = [repr(decode([token]))[1:-1] for token in row]
        return diagnostics.gates(subject.parts.model, subject.parts.encoding, row), letters
