"""eval/sums.parquet: the cells of all evaluations of a run, a row per cell and document."""

import functools
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from posenc_jax import registry
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import DOCUMENTS, Cell
from posenc_jax.runs.metrics import null_for_nan
from posenc_jax.runtime.errors import Damaged, Stop
from posenc_jax.runtime.files import parse_json, write_atomically
from posenc_jax.runtime.terminal import warn

SUMS_FILE = "sums.parquet"
KINDS = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
OF_SUMS = {
    "document": pyarrow.int32(),  # 0, 1, ... in each cell
    **dict.fromkeys(DOCUMENTS, pyarrow.float64()),
    "windows": pyarrow.float64(),  # of the cell
    "by_place": pyarrow.list_(pyarrow.float64()),  # of the cell, in its first row
}
NEEDED = "nats", "tokens"  # sums without which a cell says nothing; others may be missing
BESIDE = b"posenc_jax"  # metadata of the file: the methods left out


class Record(NamedTuple):
    """The cells of all evaluations of a run."""

    cells: list[Cell]
    left_out: list[dict[str, Any]]  # rows of the methods that do not fit
    unknown: list[Cell] = []  # of protocols that this checkout lacks, which are kept


def exists(folder: Path) -> bool:
    return (folder / SUMS_FILE).exists()


def write_record(folder: Path, record: Record) -> None:
    """Replace the file in an `eval/` folder as a whole, or leave it as it was."""
    rows = _rows([*record.cells, *record.unknown])
    rows = rows.replace_schema_metadata({BESIDE: json.dumps({"left_out": record.left_out})})
    stream = io.BytesIO()
    pyarrow.parquet.write_table(rows, stream, compression="zstd", write_page_checksum=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SUMS_FILE, stream.getvalue())


def _rows(cells: Sequence[Cell]) -> pyarrow.Table:
    sizes = [len(cell.tokens) for cell in cells]
    number = np.repeat(np.arange(len(cells)), sizes)  # of the cell of each row
    document = np.concatenate([np.arange(size) for size in sizes])
    places = [cell.by_place for cell in cells]
    held = np.where(document == 0, np.array([len(own) for own in places])[number], 0)
    kinds = {name: KINDS[kind] for name, kind in protocols.facts().items()}
    names = dict.fromkeys([*kinds, *(name for cell in cells for name in cell.facts)])
    columns: dict[str, Any] = {}
    for name in names:  # pyarrow infers the type of a column that nothing here declares
        values = [cell.facts.get(name) for cell in cells]
        columns[name] = pyarrow.array(values, kinds.get(name)).take(number)
    columns["document"] = document
    columns |= {name: np.concatenate([getattr(c, name) for c in cells]) for name in DOCUMENTS}
    columns["windows"] = np.array([cell.windows[0] for cell in cells])[number]
    columns["by_place"] = pyarrow.ListArray.from_arrays(
        np.append(0, np.cumsum(held)).astype(np.int32), np.concatenate(places)
    )
    columns |= {name: pyarrow.array(columns[name], kind) for name, kind in OF_SUMS.items()}
    return pyarrow.table(columns)


def read_record(folder: Path) -> Record:
    """Read the record in an `eval/` folder, with None in columns that it lacks; raise Damaged if a
    checksum does not match."""
    path = folder / SUMS_FILE
    try:
        stored = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise Stop(f"cannot read {path}: {error}") from error
    try:
        # `read_table` starts a thread, which aborts a program that ends before it runs.
        options = {"pre_buffer": False, "page_checksum_verification": True}
        with pyarrow.parquet.ParquetFile(stored, **options) as table:
            rows = table.read(use_threads=False)
        evaluated = rows["protocol"].unique().to_pylist()
        known = [n for n in evaluated if registry.exists("protocol", n) and protocols.find(n)]
        facts = {name: KINDS[kind] for name, kind in protocols.facts().items()}
        beside = parse_json((rows.schema.metadata or {})[BESIDE])["left_out"]
        kinds = pyarrow.schema(facts | dict.fromkeys(("method", "flag"), pyarrow.string()))
        left_out = pyarrow.Table.from_pylist(beside, kinds).to_pylist()
        for name, kind in facts.items():
            if name in rows.column_names:
                own = rows[name].cast(kind)
                rows = rows.set_column(rows.column_names.index(name), name, own)
        cells = list(_cells(rows))
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError) as e:
        reason = str(e).strip() or repr(e)
        raise Damaged(f"cannot read {path}: {reason}; run eval_extrapolation.py again") from e
    unknown = [cell for cell in cells if cell.facts["protocol"] not in known]
    for name in dict.fromkeys(cell.facts["protocol"] for cell in unknown):
        _tell_skipped(path, name)
    kept = [cell for cell in cells if cell.facts["protocol"] in known]
    return Record(kept, [null_for_nan(one) for one in left_out], unknown)


@functools.cache  # told once, however often the record is read
def _tell_skipped(path: Path, protocol: str) -> None:
    warn(f"{path}: its cells of protocol {protocol!r} are skipped, which this checkout lacks")


def _cells(rows: pyarrow.Table) -> Iterator[Cell]:
    """Split rows into cells, each of which begins with document 0."""
    first = np.flatnonzero(rows["document"].to_numpy() == 0)
    stored = [name for name in rows.column_names if name not in OF_SUMS]
    facts = rows.select(stored).take(first).to_pylist()
    unknown, readable = np.full(len(rows), np.nan), {*rows.column_names, *NEEDED}
    sums = {
        name: np.split(rows[name].to_numpy() if name in readable else unknown, first[1:])
        for name in (*DOCUMENTS, "windows")
    }
    by_place = rows["by_place"].take(first).to_pylist()
    for number, own in enumerate(facts):
        values = {name: np.array(each[number]) for name, each in sums.items()}
        values["windows"] = values["windows"][:1]
        own = dict.fromkeys(protocols.facts()) | own
        yield Cell(own, by_place=np.array(by_place[number], np.float64), **values)
