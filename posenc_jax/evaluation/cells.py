"""The sums of a cell: its key, finished cells of an interrupted evaluation, eval/sums.parquet."""

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow
import pyarrow.parquet

from posenc_jax import composition
from posenc_jax.runs.checkpoints import digests
from posenc_jax.runs.parameters import by_path
from posenc_jax.runtime.errors import Damaged, Stop
from posenc_jax.runtime.files import write_atomically
from posenc_jax.runtime.terminal import warn


class Sums(NamedTuple):
    """Sums of a cell in float64, by document and by place in the window.

    The null needs two more sums over targets with fewer than L tokens before them, scored or not
    (`within`), and over the last quarter of these (`tail`): of windows of L, and where places are
    compared; 0 elsewhere.
    """

    nats: np.ndarray  # [D]
    tokens: np.ndarray  # [D]
    bytes: np.ndarray  # [D]; 0 where the tokenizer loses text
    answers: np.ndarray  # [D], marked targets
    right: np.ndarray  # [D], marked targets ranked first
    older_right: np.ndarray  # [D], marked targets for which an older value ranked first
    early: np.ndarray  # [D], scored targets that see L tokens or fewer
    within_nats: np.ndarray  # [D]
    within_tokens: np.ndarray  # [D]
    tail_nats: np.ndarray  # [D]
    tail_tokens: np.ndarray  # [D]
    by_place: np.ndarray  # [length], nats over all windows; empty where places are not compared
    windows: np.ndarray  # [1]

    def by_unit(self, units: np.ndarray | None) -> "Sums":
        """Sum the documents of each unit, since files of one package are not independent."""
        if units is None:
            return self
        return self._replace(**{n: np.bincount(units, getattr(self, n)) for n in DOCUMENTS})


DOCUMENTS = Sums._fields[:11]


class Measured(NamedTuple):
    """A cell: the columns that identify it, and its sums."""

    facts: dict
    sums: Sums


# Columns that identify a curve, and those that make two cells comparable where they are equal.
CURVE = ("evaluation", "run", "seed", "step", "extension", "scale", "window")
TARGETS = ("token_hash", "stride", "last")
FRESH = "fresh"  # a row of the last L tokens


def curve_of(facts: Mapping) -> tuple:
    return tuple(facts[name] for name in CURVE)


def targets_of(facts: Mapping) -> tuple:
    return tuple(facts[name] for name in TARGETS)


# Methods that read no further than L, so that none is ranked, with words for tables.
BASELINES = {"window": "window of L", FRESH: "fresh row of L", "streaming": "streaming"}


def is_baseline(facts: Mapping) -> bool:
    return label(facts) in BASELINES


def label(facts: Mapping) -> str:
    """Name of a row's method in tables, pictures, wandb and command lines."""
    name = facts["extension"]
    if name == "none" and facts["window"]:
        return "window"
    if facts["scale"] is not None:
        name = composition.with_scale(name, facts["scale"])
    return f"{name}:size={facts['window']}" if facts["window"] else name


FORMAT = 5  # version of a cell's contents; a new number ignores all older cells


def tree_key(tree: Any) -> str:
    """Hash of a pytree: structure, static fields and leaves."""
    return cell_key(structure=str(jax.tree.structure(tree)), leaves=digests(by_path(tree)))


def model_key(model) -> str:
    return cell_key(config=repr(model.config), leaves=digests(by_path(model)))


def cell_key(**facts: Any) -> str:
    text = json.dumps(facts | {"format": FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    def __init__(self, folder: Path):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Sums | None:
        """Load a finished cell; None if it is missing or damaged."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            return None
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                if str(stored["key"]) != name:
                    raise ValueError(f"it holds the cell {stored['key']}")
                return Sums(*(stored[field] for field in Sums._fields))
        except Exception as error:  # a damaged archive raises many kinds
            warn(f"{path} is computed again: {error}")
            return None

    def put(self, name: str, sums: Sums) -> None:
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, key=np.array(name), **sums._asdict())
        write_atomically(self.folder / f"{name}.npz", stream.getvalue())


SUMS_FILE = "sums.parquet"
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
    "unit": pyarrow.string(),  # kind of `statistics.Units`
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
    length: int | None = None  # in tokens; None in older records: that of the longest cell


class Record(NamedTuple):
    """The cells and windows of all evaluations of a run."""

    cells: list[Measured]
    places: list[Places]
    left_out: list[dict[str, Any]]  # rows of the methods that do not fit


def exists(folder: Path) -> bool:
    return (folder / SUMS_FILE).exists()


def write_record(folder: Path, record: Record) -> None:
    """Replace the file in an `eval/` folder as a whole, or leave it as it was."""
    rows = _rows(record.cells)
    beside = {
        "windows": {
            p.evaluation: [p.document.tolist(), p.start.tolist(), p.length] for p in record.places
        },
        "left_out": record.left_out,
    }
    rows = rows.replace_schema_metadata({BESIDE: json.dumps(beside)})
    stream = io.BytesIO()
    pyarrow.parquet.write_table(rows, stream, compression="zstd", write_page_checksum=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SUMS_FILE, stream.getvalue())


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


def read_record(folder: Path) -> Record:
    """Read the record in an `eval/` folder; raise Damaged if a checksum does not match."""
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
        beside = json.loads((rows.schema.metadata or {})[BESIDE])
        if not rows.schema.equals(SCHEMA):
            raise ValueError("its columns are damaged, or of another version")
        places = [
            Places(name, np.array(document, np.int64), np.array(start, np.int64), *length)
            for name, (document, start, *length) in beside["windows"].items()
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
