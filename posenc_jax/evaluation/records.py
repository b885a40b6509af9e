"""Rows of curves from sums and counts of each document; the null model; what is written."""

import csv
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posenc_jax.evaluation.statistics import mean_and_error
from posenc_jax.exits import Stop
from posenc_jax.training.run import write_atomically

COLUMNS = (
    "run,encoding,extension,scale,protocol,window,stride,train_length,length,tokens,token_hash,nll,"
    "nll_se,ppl,bpb,null_nll,gain_bpb,seed,step,last,documents,answers,accuracy,flag"
).split(",")
# What a cell is, as columns; the numbers come from its sums.
FACTS = (
    "run,encoding,extension,scale,protocol,window,stride,train_length,length,token_hash,seed,step,"
    "last"
).split(",")


class Sums(NamedTuple):
    """What was measured in a cell, in float64: of every document, and by place in the window."""

    nats: np.ndarray  # [D]
    tokens: np.ndarray  # [D]
    bytes: np.ndarray  # [D]
    answers: np.ndarray  # [D], marked targets
    right: np.ndarray  # [D], of them
    by_place: np.ndarray  # [length], nats over all windows; empty where places are not compared
    windows: np.ndarray  # [1]


DOCUMENTS = Sums._fields[:5]


class Measured(NamedTuple):
    facts: dict
    sums: Sums


def row(measured: Measured) -> dict:
    """Without what needs other rows."""
    facts, sums = measured
    nll, error = mean_and_error(sums.nats, sums.tokens)
    finite = bool(np.isfinite(nll))
    answers = int(sums.answers.sum())
    return (
        {name: None for name in COLUMNS}
        | facts
        | {
            "tokens": int(sums.tokens.sum()),
            "nll": nll if finite else None,
            "nll_se": error if finite else None,
            "ppl": float(np.exp(min(nll, 700))) if finite else None,
            "bpb": float(sums.nats.sum() / sums.bytes.sum() / np.log(2)) if finite else None,
            "documents": len(sums.tokens),
            "answers": answers or None,
            "accuracy": float(sums.right.sum() / answers) if answers and finite else None,
            "flag": None if finite else "not finite",
        }
    )


def rows(cells: Sequence[Measured]) -> list[dict]:
    """One row per cell, with the null model of its own curve."""
    made = [row(cell) for cell in cells]
    curves: dict[tuple, dict] = {}
    for one in made:
        curves.setdefault(_curve(one), {})[one["protocol"], one["length"]] = one["nll"]
    for one, cell in zip(made, cells, strict=True):
        value = null(one, curves[_curve(one)], cell.sums)
        if value is not None and one["nll"] is not None:
            one["null_nll"] = value
            per_byte = one["tokens"] / cell.sums.bytes.sum() / np.log(2)
            one["gain_bpb"] = float((value - one["nll"]) * per_byte)
    return made


def _curve(one: Mapping) -> tuple:
    """Rows of one run, checkpoint and method; a window limit is a method of its own."""
    names = ("run", "seed", "step", "extension", "scale", "window")
    return tuple(one[name] for name in names)


def null(one: Mapping, curve: Mapping, sums: Sums) -> float | None:
    """What the same model would score if it never used more than L tokens."""
    trained, length = one["train_length"], one["length"]
    if one["protocol"] == "position":
        value = float(np.mean(null_places(sums.by_place / sums.windows, trained)))
        return value if np.isfinite(value) else None
    if length <= trained:
        return one["nll"]
    at_trained = curve.get((one["protocol"], trained))
    if one["protocol"] == "nonoverlap":
        return null_nonoverlap(at_trained, curve.get(("same_token", trained)), trained, length)
    return at_trained


def null_places(places: np.ndarray, trained: int) -> np.ndarray:
    """The curve up to L, then constant at its mean over the last quarter of L: a single place is
    the mean of few targets, and its noise would move all that follow."""
    constant = places[:trained][-max(1, trained // 4) :].mean()
    return np.where(np.arange(len(places)) < trained, places, constant)


def null_nonoverlap(
    nonoverlap: float | None, same_token: float | None, trained: int, length: int
) -> float | None:
    """The first L targets of a window as in a window of L, the others with L tokens of context."""
    if nonoverlap is None or same_token is None:
        return None
    return (trained * nonoverlap + (length - trained) * same_token) / length


def write(folder: Path, cells: Sequence[Measured]) -> list[dict]:
    """curves.csv and curves.jsonl, and documents.npz and positions.npz to make them again."""
    made = rows(cells)
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(made)
    lines = "".join(json.dumps(one, allow_nan=False) + "\n" for one in made)
    by_place = [cell for cell in cells if len(cell.sums.by_place)]
    save_arrays(
        folder / "documents.npz",
        cells=_facts(cells),
        **{name: np.array([getattr(cell.sums, name) for cell in cells]) for name in DOCUMENTS},
    )
    save_arrays(
        folder / "positions.npz",
        cells=_facts(by_place),
        nats=np.array([cell.sums.by_place for cell in by_place]),
        windows=np.array([cell.sums.windows for cell in by_place]),
    )
    write_atomically(folder / "curves.jsonl", lines)
    write_atomically(folder / "curves.csv", table.getvalue())
    return made


def read(folder: Path) -> list[Measured]:
    """The cells of an evaluation, from its arrays alone."""
    stored = load_arrays(folder / "positions.npz")
    pairs = zip(stored["nats"], stored["windows"], strict=True)
    places = dict(zip(map(str, stored["cells"]), pairs, strict=True))
    stored = load_arrays(folder / "documents.npz")
    columns = zip(*(stored[name] for name in DOCUMENTS), strict=True)
    cells = []
    for text, values in zip(map(str, stored["cells"]), columns, strict=True):
        if text not in places and json.loads(text)["protocol"] == "position":
            raise Stop(f"the arrays in {folder} are of two evaluations; run it again")
        by_place, windows = places.get(text, (np.zeros(0), np.zeros(1)))
        sums = Sums(**dict(zip(DOCUMENTS, values, strict=True)), by_place=by_place, windows=windows)
        cells.append(Measured(json.loads(text), sums))
    return cells


def _facts(cells: Sequence[Measured]) -> np.ndarray:
    texts = [json.dumps({name: cell.facts[name] for name in FACTS}) for cell in cells]
    return np.array(texts, dtype=np.str_)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise Stop(f"cannot read {path}: {error}; run eval_extrapolation.py again") from error


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    try:
        with scratch.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise Stop(f"cannot write {path}: {error}") from error
