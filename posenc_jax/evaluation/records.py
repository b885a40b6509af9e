"""Rows of curves from sums and counts of each document; the null model; what is written."""

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
# What a cell is, as columns; the numbers come from its sums.
FACTS = (
    "run,encoding,extension,scale,protocol,window,stride,train_length,length,token_hash,seed,step,"
    "last,evaluation,text,data,part,chance,ceiling"
).split(",")
HELD_OUT = "held-out"  # the name of the evaluation of the run's own text
# Before evaluations had names, and before protocols had parts.
UNNAMED = {"evaluation": "unnamed", "text": "", "data": ""}
UNNAMED |= {"part": "", "chance": None, "ceiling": None}


class Places(NamedTuple):
    """Where the longest windows of an evaluation lie."""

    evaluation: str
    document: np.ndarray  # [W], number of the document among those of the text
    start: np.ndarray  # [W], its first token, from the beginning of the document


def row(measured: Measured) -> dict:
    """Without what needs other rows."""
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
    """From nats per token to bits per byte."""
    size = sums.bytes.sum()
    return float(sums.tokens.sum() / size / np.log(2)) if size else None


def rows(cells: Sequence[Measured]) -> list[dict]:
    """One row per cell, with the null model of its own curve."""
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
    """What was measured by curve, and in it by protocol and length."""
    found: dict[tuple, dict[tuple[str, int], Sums]] = {}
    for cell in cells:
        key = cell.facts["protocol"], cell.facts["length"]
        found.setdefault(_curve(cell.facts), {})[key] = cell.sums
    return found


def _curve(facts: Mapping) -> tuple:
    """Rows of one evaluation, run, checkpoint and method; a window limit is a method too."""
    names = ("evaluation", "run", "seed", "step", "extension", "scale", "window", "part")
    return tuple(facts.get(name) for name in names)


def null(one: Mapping, curve: Mapping[tuple[str, int], Sums], sums: Sums) -> Terms | None:
    """What the same model would score if it never used more than L tokens, as its protocol says."""
    if one["length"] <= one["train_length"]:
        return [(1.0, sums.nats, sums.tokens)]
    return protocols.find(one["protocol"]).null(one["train_length"], sums, curve)


def _against(terms: Terms, sums: Sums) -> dict:
    """The null with its interval, and the gain over it, over documents."""
    value = combined(terms)
    if not np.isfinite(value.mean):
        return {}
    gain = combined([*terms, (-1.0, sums.nats, sums.tokens)])
    if len(terms) == 1 and np.array_equal(terms[0][2], sums.tokens):  # of the same targets
        gain = paired(terms[0][1], sums.nats, sums.tokens)
    per_byte = per_byte_of(sums)
    found = {"null_nll": value.mean, "null_low": value.low, "null_high": value.high}
    if per_byte:
        ends = {"gain_bpb": gain.mean, "gain_low": gain.low, "gain_high": gain.high}
        found |= {name: end * per_byte for name, end in ends.items()}
    return null_for_nan(found)


def beyond_trained(cell: Measured, cells: Sequence[Measured]) -> float | None:
    """Nats per token at a place beyond L of the null model of a cell that has places."""
    facts = cell.facts
    curve = curves(cells)[_curve(facts)]
    terms = protocols.find(facts["protocol"]).null(facts["train_length"], cell.sums, curve)
    if terms is None:
        return None
    _, nats, tokens = terms[-1]
    return float(nats.sum() / tokens.sum())


class Record(NamedTuple):
    """What all evaluations of a run left in its folder."""

    cells: list[Measured]
    places: list[Places]


def write(
    folder: Path,
    cells: Sequence[Measured],
    places: Sequence[Places] = (),
    earlier: Record | None = None,  # where it was read already
) -> list[Measured]:
    """Puts cells into the record of all evaluations of the run; all of them.

    The newest come first; those of the same evaluation and checkpoint are replaced. Written are
    curves.csv and curves.jsonl, and documents.npz and positions.npz to make them again.
    """
    earlier = before(folder) if earlier is None else earlier
    folder.mkdir(parents=True, exist_ok=True)
    told = {(cell.facts["evaluation"], cell.facts["step"]) for cell in cells}
    others = [c for c in earlier.cells if (c.facts["evaluation"], c.facts["step"]) not in told]
    every = [*cells, *others]
    named = {cell.facts["evaluation"] for cell in every}
    lies = {p.evaluation: p for p in [*earlier.places, *places] if p.evaluation in named}
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
        window_evaluation=_joined([np.full(len(p.start), p.evaluation) for p in lies.values()]),
        window_document=_joined([p.document for p in lies.values()]),
        window_start=_joined([p.start for p in lies.values()]),
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
    """The record as it is; an empty one, with a warning, where it cannot be read."""
    if not (folder / "documents.npz").exists():
        return Record([], [])
    try:
        return _read(folder)
    except Stop as error:
        warn(f"{error}; it is written anew, without what other evaluations left there")
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
            f"the arrays in {folder} are not those of one record ({error}); run "
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
        none = np.zeros(len(own["tokens"]))  # what the first wave did not keep
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
    """The first wave kept it for places alone."""
    if "windows" in stored:
        return stored["windows"][number : number + 1]
    cells = [str(cell) for cell in by_place["cells"]]
    return by_place["windows"][cells.index(text)] if text in cells else np.zeros(1)


def _parts(stored: Mapping[str, np.ndarray], counts: str, name: str) -> list[np.ndarray]:
    """What was written one after another, by cell; the first wave wrote a row for each."""
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
    """Where the longest windows of each evaluation lie."""
    if "window_evaluation" not in stored:
        return []
    owner = stored["window_evaluation"]
    return [
        Places(str(n), stored["window_document"][owner == n], stored["window_start"][owner == n])
        for n in dict.fromkeys(owner.tolist())
    ]


def of_evaluation(cells: Sequence[Measured], name: str = "") -> list[Measured]:
    """Those of one evaluation: the named one, else that of the run's own held-out text, else the
    one made last."""
    names = list(dict.fromkeys(cell.facts["evaluation"] for cell in cells))
    if name and name not in names:
        raise DataError(f"there is no evaluation {name!r}; have: {', '.join(names)}")
    chosen = name or next((n for n in (HELD_OUT, *names) if n in names), "")
    return [cell for cell in cells if cell.facts["evaluation"] == chosen]


def _facts(cells: Sequence[Measured]) -> np.ndarray:
    texts = [json.dumps({name: cell.facts[name] for name in FACTS}) for cell in cells]
    return np.array(texts, dtype=np.str_)


# What a damaged archive raises, wherever the damage lies.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,  # an entry that says it is encrypted, or compressed in a way there is not
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def load_arrays(path: Path, *, sealed: bool = False) -> dict[str, np.ndarray]:
    """What `save_arrays` wrote; the first wave wrote no digest."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            found = dict(stored)
        digest = found.pop("digest", None)
        if digest is None and (sealed or "documents" in found or "places" in found):
            raise ValueError("its digest is missing")
        if digest is not None and str(digest) != _digest(found):
            raise ValueError("its arrays are not those that were written")
        return found
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
    """sha256 over name, type, shape and bytes of every array."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
