"""Make rows of curves from sums by document, with the null model; read and write them."""

import csv
import hashlib
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posenc_jax.errors import DataError, Stop
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import Terms, combined, mean_and_error, paired, wilson
from posenc_jax.evaluation.sums import DOCUMENTS, Measured, Sums
from posenc_jax.files import write_atomically
from posenc_jax.runs.metrics import null_for_nan
from posenc_jax.terminal import warn

COLUMNS = (
    "run,encoding,extension,scale,protocol,window,stride,train_length,length,tokens,token_hash,nll,"
    "nll_se,ppl,bpb,null_nll,gain_bpb,seed,step,last,documents,answers,accuracy,flag,windows,"
    "null_low,null_high,gain_low,gain_high,evaluation,text,data,part,chance,ceiling,accuracy_low,"
    "accuracy_high"
).split(",")
# Columns that identify a cell; the others are computed from its sums.
FACTS = (
    "run,encoding,extension,scale,protocol,window,stride,train_length,length,token_hash,seed,step,"
    "last,evaluation,text,data,part,chance,ceiling"
).split(",")
HELD_OUT = "held-out"  # the name of the evaluation of the run's own text
# Before evaluations had names, and before protocols had parts.
UNNAMED = {"evaluation": "unnamed", "text": "", "data": ""}
UNNAMED |= {"part": "", "chance": None, "ceiling": None}


class Places(NamedTuple):
    """Positions of the longest windows of an evaluation."""

    evaluation: str
    document: np.ndarray  # [W], index of the document in the text
    start: np.ndarray  # [W], its first token, from the beginning of the document


def row(measured: Measured) -> dict:
    """The row of a cell, without the columns that need other rows."""
    facts, sums = measured
    nll, error = mean_and_error(sums.nats, sums.tokens)
    finite = bool(np.isfinite(nll))
    answers = int(sums.answers.sum())
    per_byte = per_byte_of(sums)
    low, high = wilson(float(sums.right.sum()), answers) if answers and finite else (None, None)
    return (
        {name: None for name in COLUMNS}
        | facts
        | {
            "tokens": int(sums.tokens.sum()),
            "nll": nll if finite else None,
            "nll_se": error if finite else None,
            "ppl": float(np.exp(min(nll, 700))) if finite else None,
            "bpb": nll * per_byte if finite and per_byte else None,
            "documents": len(sums.tokens),
            "windows": int(sums.windows[0]) or None,
            "answers": answers or None,
            "accuracy": float(sums.right.sum() / answers) if answers and finite else None,
            "accuracy_low": low,
            "accuracy_high": high,
            "flag": "not finite" if not finite else None if per_byte else LOSSY,
        }
    )


LOSSY = "no bits per byte: the tokenizer loses text"


def per_byte_of(sums: Sums) -> float | None:
    """The factor from nats per token to bits per byte; None where the tokenizer loses text."""
    size = sums.bytes.sum()
    return float(sums.tokens.sum() / size / np.log(2)) if size else None


def rows(cells: Sequence[Measured]) -> list[dict]:
    """One row per cell, with the null of its own curve."""
    all_curves = curves(cells)
    made = []
    for cell in cells:
        one = row(cell)
        terms = null(one, all_curves[_curve(one)], cell.sums)
        if terms is not None and one["nll"] is not None:
            one |= _against(terms, cell.sums)
        made.append(one)
    return made


def curves(cells: Sequence[Measured]) -> dict[tuple, dict[tuple[str, int], Sums]]:
    """The sums of cells by curve, then by protocol and length."""
    by_curve: dict[tuple, dict[tuple[str, int], Sums]] = {}
    for cell in cells:
        key = cell.facts["protocol"], cell.facts["length"]
        by_curve.setdefault(_curve(cell.facts), {})[key] = cell.sums
    return by_curve


def _curve(facts: Mapping) -> tuple:
    """Rows of one evaluation, run, checkpoint and method; a window limit is a method too."""
    names = ("evaluation", "run", "seed", "step", "extension", "scale", "window", "part")
    return tuple(facts.get(name) for name in names)


def null(one: Mapping, curve: Mapping[tuple[str, int], Sums], sums: Sums) -> Terms | None:
    """The null of a row, as its protocol states: the model's score if it never used more than L."""
    if one["length"] <= one["train_length"]:
        return [(1.0, sums.nats, sums.tokens)]
    return protocols.find(one["protocol"]).null(one["train_length"], sums, curve)


def _against(terms: Terms, sums: Sums) -> dict:
    """Columns of the null and the gain over it, with intervals over documents."""
    value = combined(terms)
    if not np.isfinite(value.mean):
        return {}
    gain = combined([*terms, (-1.0, sums.nats, sums.tokens)])
    if len(terms) == 1 and np.array_equal(terms[0][2], sums.tokens):  # of the same targets
        gain = paired(terms[0][1], sums.nats, sums.tokens)
    per_byte = per_byte_of(sums)
    columns = {"null_nll": value.mean, "null_low": value.low, "null_high": value.high}
    if per_byte:
        ends = {"gain_bpb": gain.mean, "gain_low": gain.low, "gain_high": gain.high}
        columns |= {name: end * per_byte for name, end in ends.items()}
    return null_for_nan(columns)


def beyond_trained(cell: Measured, cells: Sequence[Measured]) -> float | None:
    """The null at places beyond L, in nats per token, of a cell that has places."""
    facts = cell.facts
    curve = curves(cells)[_curve(facts)]
    terms = protocols.find(facts["protocol"]).null(facts["train_length"], cell.sums, curve)
    if terms is None:
        return None
    _, nats, tokens = terms[-1]
    return float(nats.sum() / tokens.sum())


class Record(NamedTuple):
    """The cells and windows of all evaluations of a run."""

    cells: list[Measured]
    places: list[Places]


def write(
    folder: Path,
    cells: Sequence[Measured],
    places: Sequence[Places] = (),
    earlier: Record | None = None,  # if it was read already
) -> list[Measured]:
    """Add cells to the record of all evaluations of a run, and return all of them.

    The newest come first and replace those of the same evaluation and checkpoint. curves.csv and
    curves.jsonl hold the rows; documents.npz and positions.npz the sums they are made from.
    """
    earlier = before(folder) if earlier is None else earlier
    folder.mkdir(parents=True, exist_ok=True)
    new = {(cell.facts["evaluation"], cell.facts["step"]) for cell in cells}
    others = [c for c in earlier.cells if (c.facts["evaluation"], c.facts["step"]) not in new]
    every = [*cells, *others]
    named = {cell.facts["evaluation"] for cell in every}
    windows = {p.evaluation: p for p in [*earlier.places, *places] if p.evaluation in named}
    made = rows(every)
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(made)
    lines = "".join(json.dumps(one, allow_nan=False) + "\n" for one in made)
    by_place = [cell for cell in every if len(cell.sums.by_place)]
    save_arrays(
        folder / "documents.npz",
        cells=_facts(every),
        documents=np.array([len(cell.sums.tokens) for cell in every]),
        **{n: np.concatenate([getattr(c.sums, n) for c in every]) for n in DOCUMENTS},
        windows=np.concatenate([cell.sums.windows for cell in every]),
        window_evaluation=_joined([np.full(len(p.start), p.evaluation) for p in windows.values()]),
        window_document=_joined([p.document for p in windows.values()]),
        window_start=_joined([p.start for p in windows.values()]),
    )
    save_arrays(
        folder / "positions.npz",
        cells=_facts(by_place),
        places=np.array([len(cell.sums.by_place) for cell in by_place], np.int64),
        nats=_joined([cell.sums.by_place for cell in by_place]),
    )
    write_atomically(folder / "curves.jsonl", lines)
    write_atomically(folder / "curves.csv", table.getvalue())
    return every


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0)


def before(folder: Path) -> Record:
    """The record in a folder; where it cannot be read an empty one, with a warning."""
    if not (folder / "documents.npz").exists():
        return Record([], [])
    try:
        return _read(folder)
    except Stop as error:
        warn(f"{error}; it is rewritten without the rows of other evaluations")
        return Record([], [])


def read(folder: Path) -> list[Measured]:
    """The cells of every evaluation of a run, from their arrays alone."""
    return _read(folder).cells


def _read(folder: Path) -> Record:
    by_documents, by_place = (
        load_arrays(folder / f"{name}.npz") for name in ("documents", "positions")
    )
    try:
        return Record(_cells(by_documents, by_place), _places(by_documents))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Stop(
            f"the arrays in {folder} do not form one record ({error}); run "
            "eval_extrapolation.py again"
        ) from error


def _cells(stored: Mapping[str, np.ndarray], by_place: Mapping[str, np.ndarray]) -> list[Measured]:
    texts = [str(text) for text in stored["cells"]]
    places = dict(zip(map(str, by_place["cells"]), _parts(by_place, "places", "nats"), strict=True))
    columns = {
        name: _parts(stored, "documents", name) if name in stored else None for name in DOCUMENTS
    }
    cells = []
    for number, text in enumerate(texts):
        facts = UNNAMED | json.loads(text)
        if text not in places and protocols.find(facts["protocol"]).by_place:
            raise ValueError("they are of two evaluations")
        own = {name: parts[number] for name, parts in columns.items() if parts is not None}
        none = np.zeros(len(own["tokens"]))  # format 1 did not keep these
        windows = _windows(stored, by_place, number, text)
        sums = Sums(
            **{name: own.get(name, none) for name in DOCUMENTS},
            by_place=places.get(text, np.zeros(0)),
            windows=windows,
        )
        sums.check()
        cells.append(Measured(facts, sums))
    return cells


def _windows(stored, by_place, number: int, text: str) -> np.ndarray:  # [1]
    """The number of windows, which format 1 kept only for cells with places."""
    if "windows" in stored:
        return stored["windows"][number : number + 1]
    cells = [str(cell) for cell in by_place["cells"]]
    return by_place["windows"][cells.index(text)] if text in cells else np.zeros(1)


def _parts(stored: Mapping[str, np.ndarray], counts: str, name: str) -> list[np.ndarray]:
    """Split concatenated values by cell; format 1 wrote one row for each cell."""
    values, cells = stored[name], len(stored["cells"])
    if counts not in stored:
        if values.ndim != 2 and len(values):
            raise ValueError(f"{name} has shape {values.shape}")
        wide = {stored[n].shape for n in DOCUMENTS if n in stored}
        if len(wide) > 1 or len(values) != cells:
            raise ValueError(f"{name} has shape {values.shape} for {cells} cells, others {wide}")
        return list(values)
    each = stored[counts]
    if values.ndim != 1 or each.shape != (cells,) or each.sum() != len(values):
        raise ValueError(
            f"{name} has shape {values.shape} for {cells} cells of {each.sum()} in all"
        )
    return np.split(values, np.cumsum(each)[:-1]) if cells else []


def _places(stored: Mapping[str, np.ndarray]) -> list[Places]:
    """Positions of the longest windows of each evaluation."""
    if "window_evaluation" not in stored:
        return []
    owner = stored["window_evaluation"]
    return [
        Places(str(n), stored["window_document"][owner == n], stored["window_start"][owner == n])
        for n in dict.fromkeys(owner.tolist())
    ]


def of_evaluation(cells: Sequence[Measured], name: str = "") -> list[Measured]:
    """The cells of one evaluation: the named one, else that of the run's held-out text, else the
    newest."""
    names = list(dict.fromkeys(cell.facts["evaluation"] for cell in cells))
    if name and name not in names:
        raise DataError(f"there is no evaluation {name!r}; have: {', '.join(names)}")
    chosen = name or next((n for n in (HELD_OUT, *names) if n in names), "")
    return [cell for cell in cells if cell.facts["evaluation"] == chosen]


def _facts(cells: Sequence[Measured]) -> np.ndarray:
    texts = [json.dumps({name: cell.facts[name] for name in FACTS}) for cell in cells]
    return np.array(texts, dtype=np.str_)


# Errors that a damaged archive raises, wherever the damage is.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,  # an entry marked as encrypted or compressed by an unknown method
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def load_arrays(path: Path, *, sealed: bool = False) -> dict[str, np.ndarray]:
    """Load what `save_arrays` wrote; format 1 has no digest."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = dict(stored)
        digest = arrays.pop("digest", None)
        if digest is None and (sealed or "documents" in arrays or "places" in arrays):
            raise ValueError("its digest is missing")
        if digest is not None and str(digest) != _digest(arrays):
            raise ValueError("its arrays are not those that were written")
        return arrays
    except _UNREADABLE as error:
        raise Stop(f"cannot read {path}: {error}; run eval_extrapolation.py again") from error


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    try:
        with scratch.open("wb") as stream:
            np.savez(stream, allow_pickle=False, digest=np.array(_digest(arrays)), **arrays)
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise Stop(f"cannot write {path}: {error}") from error


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """sha256 of arrays: name, type, shape and bytes of each."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
