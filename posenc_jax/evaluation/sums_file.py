"""eval/sums.parquet: the sums of all evaluations of a run, one row per cell and document."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from posenc_jax.errors import Damaged, Stop
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
    "orderless": pyarrow.float64(),
    "older": pyarrow.int64(),
    "separation": pyarrow.string(),
    "weights": pyarrow.string(),  # digest of the parameters
    "processor": pyarrow.string(),
    "jaxlib": pyarrow.string(),
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
BESIDE = b"posenc_jax"  # metadata of the file: windows, methods left out


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
    rows = _rows(record.cells)
    beside = {
        "windows": {p.evaluation: [p.document.tolist(), p.start.tolist()] for p in record.places},
        "left_out": record.left_out,
    }
    rows = rows.replace_schema_metadata({BESIDE: json.dumps(beside)})
    stream = io.BytesIO()
    pyarrow.parquet.write_table(rows, stream, compression="zstd", write_page_checksum=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, stream.getvalue())


def _rows(cells: Sequence[Measured]) -> pyarrow.Table:
    sizes = [len(cell.sums.tokens) for cell in cells]
    number = np.repeat(np.arange(len(cells)), sizes)  # of the cell of each row
    document = np.concatenate([np.arange(size) for size in sizes])
    places = [cell.sums.by_place for cell in cells]
    held = np.where(document == 0, np.array([len(own) for own in places])[number], 0)
    columns = {name: pyarrow.array([c.facts[name] for c in cells], t) for name, t in FACTS.items()}
    columns = {name: column.take(number) for name, column in columns.items()}
    columns |= {name: np.concatenate([getattr(c.sums, name) for c in cells]) for name in DOCUMENTS}
    columns |= {
        "document": pyarrow.array(document, pyarrow.int32()),
        "windows": np.array([cell.sums.windows[0] for cell in cells])[number],
        "by_place": pyarrow.ListArray.from_arrays(
            np.append(0, np.cumsum(held)).astype(np.int32), np.concatenate(places)
        ),
    }
    return pyarrow.table(columns).select(SCHEMA.names).cast(SCHEMA)


def read(folder: Path) -> Record:
    """Read the record in an `eval/` folder; raise Damaged if a checksum does not match."""
    path = folder / FILE
    try:
        stored = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise Stop(f"cannot read {path}: {error}") from error
    try:
        # `read_table` starts a thread, which aborts a program that ends before it runs.
        options = {"pre_buffer": False, "page_checksum_verification": True}
        with pyarrow.parquet.ParquetFile(stored, **options) as table:
            rows = table.read(use_threads=False)
        beside = json.loads((rows.schema.metadata or {})[BESIDE])
        if not rows.schema.equals(SCHEMA):
            raise ValueError("its columns are damaged, or of another version")
        places = [
            Places(name, np.array(document, np.int64), np.array(start, np.int64))
            for name, (document, start) in beside["windows"].items()
        ]
        return Record(list(_cells(rows)), places, beside["left_out"])
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip() or repr(error)
        raise Damaged(f"cannot read {path}: {reason}; run eval_extrapolation.py again") from error


def _cells(rows: pyarrow.Table) -> Iterable[Measured]:
    """Split rows into cells, each of which begins with document 0."""
    first = np.flatnonzero(rows["document"].to_numpy() == 0)
    facts = rows.select(list(FACTS)).take(first).to_pylist()
    sums = {name: np.split(rows[name].to_numpy(), first[1:]) for name in (*DOCUMENTS, "windows")}
    by_place = rows["by_place"].take(first).to_pylist()
    for number, own in enumerate(facts):
        values = {name: np.array(each[number]) for name, each in sums.items()}
        values["windows"] = values["windows"][:1]
        yield Measured(own, Sums(by_place=np.array(by_place[number], np.float64), **values))
