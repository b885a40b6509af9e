"""eval/sums.parquet: the sums of all evaluations of a run, a row per cell and document."""

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from posenc_jax.errors import Stop
from posenc_jax.evaluation.sums import DOCUMENTS, Measured, Sums
from posenc_jax.files import write_atomically

FILE = "sums.parquet"
# Columns that identify a cell; the others are its sums.
FACTS: Mapping[str, pyarrow.DataType] = {
    "run": pyarrow.string(),
    "encoding": pyarrow.string(),
    "extension": pyarrow.string(),
    "scale": pyarrow.float64(),
    "protocol": pyarrow.string(),
    "window": pyarrow.int64(),
    "stride": pyarrow.int64(),
    "train_length": pyarrow.int64(),
    "length": pyarrow.int64(),
    "token_hash": pyarrow.string(),
    "seed": pyarrow.int64(),
    "step": pyarrow.int64(),
    "last": pyarrow.int64(),
    "evaluation": pyarrow.string(),
    "text": pyarrow.string(),
    "data": pyarrow.string(),
    "part": pyarrow.string(),
    "chance": pyarrow.float64(),
    "ceiling": pyarrow.float64(),
}
SCHEMA = pyarrow.schema(
    [
        *FACTS.items(),
        ("document", pyarrow.int32()),  # 0, 1, ... in each cell
        *((name, pyarrow.float64()) for name in DOCUMENTS),
        ("windows", pyarrow.float64()),  # of the cell
        ("by_place", pyarrow.list_(pyarrow.float64())),  # of the cell, in its first row
    ]
)
BESIDE = b"posenc_jax"  # metadata of the file: windows, methods left out, digest


class Places(NamedTuple):
    """Positions of the longest windows of an evaluation."""

    evaluation: str
    document: np.ndarray  # [W], index of the document in the text
    start: np.ndarray  # [W], its first token, from the beginning of the document


class Record(NamedTuple):
    """The cells and windows of all evaluations of a run."""

    cells: list[Measured]
    places: list[Places]
    left_out: list[dict[str, Any]]  # rows of the methods that do not fit


def exists(folder: Path) -> bool:
    return (folder / FILE).exists()


def write(folder: Path, record: Record) -> None:
    """Replace the file in an `eval/` folder as a whole, or leave it as it was."""
    rows = pyarrow.table(_columns(record.cells), schema=SCHEMA)
    beside = {
        "windows": {p.evaluation: [p.document.tolist(), p.start.tolist()] for p in record.places},
        "left_out": record.left_out,
    }
    digest = _digest(rows, beside)
    metadata = {BESIDE: json.dumps(beside | {"digest": digest})}
    stream = io.BytesIO()
    pyarrow.parquet.write_table(rows.replace_schema_metadata(metadata), stream, compression="zstd")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, stream.getvalue())


def _columns(cells: Sequence[Measured]) -> dict[str, Any]:
    sizes = [len(cell.sums.tokens) for cell in cells]
    columns: dict[str, Any] = {
        name: [cell.facts[name] for cell in cells for _ in cell.sums.tokens] for name in FACTS
    }
    columns["document"] = [number for size in sizes for number in range(size)]
    for name in DOCUMENTS:
        columns[name] = [value for cell in cells for value in getattr(cell.sums, name).tolist()]
    columns["windows"] = np.repeat([float(cell.sums.windows[0]) for cell in cells], sizes)
    columns["by_place"] = [
        cell.sums.by_place.tolist() if first else []
        for cell, size in zip(cells, sizes, strict=True)
        for first in [True, *[False] * (size - 1)]
    ]
    return columns


def read(folder: Path) -> Record:
    """The record in an `eval/` folder; a Stop where the file is not what was written."""
    path = folder / FILE
    try:
        rows = pyarrow.parquet.read_table(io.BytesIO(path.read_bytes()))
        beside = json.loads((rows.schema.metadata or {})[BESIDE])
        digest = beside.pop("digest")
        if not rows.schema.equals(SCHEMA) or digest != _digest(rows, beside):
            raise ValueError("it is not what was written")
        places = [
            Places(name, np.array(document, np.int64), np.array(start, np.int64))
            for name, (document, start) in beside["windows"].items()
        ]
        return Record(list(_cells(rows)), places, beside["left_out"])
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip() or repr(error)
        raise Stop(f"cannot read {path}: {reason}; run eval_extrapolation.py again") from error


def _cells(rows: pyarrow.Table) -> Iterable[Measured]:
    """The cells, each of which begins with its document 0."""
    first = np.flatnonzero(rows["document"].to_numpy() == 0)
    facts = rows.select(list(FACTS)).take(first).to_pylist()
    sums = {name: np.split(rows[name].to_numpy(), first[1:]) for name in (*DOCUMENTS, "windows")}
    by_place = rows["by_place"].take(first).to_pylist()
    for number, own in enumerate(facts):
        values = {name: np.array(each[number]) for name, each in sums.items()}
        values["windows"] = values["windows"][:1]
        yield Measured(own, Sums(by_place=np.array(by_place[number], np.float64), **values))


def _digest(rows: pyarrow.Table, beside: Mapping[str, Any]) -> str:
    """sha256 of every value and of what stands beside the rows."""
    names = rows.select([*FACTS, "document"]).to_pylist()
    digest = hashlib.sha256(json.dumps([names, beside], sort_keys=True).encode())
    for name in (*DOCUMENTS, "windows"):
        digest.update(rows[name].to_numpy().tobytes())
    for places in rows["by_place"].to_pylist():
        digest.update(f"{len(places)} ".encode() + np.array(places, np.float64).tobytes())
    return digest.hexdigest()
