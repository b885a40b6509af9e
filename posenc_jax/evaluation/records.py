"""Compute the rows of curves.csv from sums by document, with the null model, and store both."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.data.texts import HELD_OUT
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES, Cell, by_part, curve_of, is_baseline, label
from posenc_jax.evaluation.statistics import Terms, Units, combined, mean_and_error, paired, wilson
from posenc_jax.evaluation.sums import SUMS_FILE, Record, exists, read_record, write_record
from posenc_jax.runs.metrics import null_for_nan
from posenc_jax.runtime.errors import Damaged, DataError
from posenc_jax.runtime.files import write_atomically, write_csv
from posenc_jax.runtime.terminal import printable, warn

NOTHING = Record([], [])


def row(cell: Cell) -> dict:
    """Row of a cell, without the columns that need other rows."""
    nll, error = mean_and_error(cell.nats, cell.tokens)
    finite = bool(np.isfinite(nll))
    answers, windows = (int(np.nan_to_num(n)) for n in (cell.answers.sum(), cell.windows[0]))
    per_byte = per_byte_of(cell)
    low, high = wilson(float(cell.right.sum()), answers) if answers and finite else (None, None)
    loss = combined([(1.0, cell.nats, cell.tokens)]) if finite else None
    ends = {} if loss is None else {"nll_low": loss.low, "nll_high": loss.high}
    known: dict[str, Any] = dict.fromkeys(protocols.columns()) | cell.facts
    units = Units(int((cell.tokens > 0).sum()), known["unit"])
    if finite:
        known |= protocols.find(known["protocol"]).values(cell)
    numbers = {
        "tokens": int(cell.tokens.sum()),
        "nll": nll if finite else None,
        "nll_se": error if finite else None,
        "ppl": float(np.exp(min(nll, 700))) if finite else None,
        "bpb": nll * per_byte if finite and per_byte else None,
        "documents": units.documents,
        "units": units.number,
        "windows": windows or None,
        "answers": answers or None,
        "accuracy": float(cell.right.sum() / answers) if answers and finite else None,
        "accuracy_low": low,
        "accuracy_high": high,
        "flag": "not finite" if not finite else None if per_byte else LOSSY,
        "method": label(known),
        **ends,
    }
    return null_for_nan(known | numbers)


LOSSY = "no bits per byte: the tokenizer loses text"


def per_byte_of(cell: Cell) -> float | None:
    """Factor from nats per token to bits per byte; None where the tokenizer loses text."""
    size = cell.bytes.sum()
    return float(cell.tokens.sum() / size / np.log(2)) if size else None


def rows_left_out(facts: dict, unfit: Mapping[str, str]) -> list[dict]:
    """One row per method that does not fit a run, with the reason as its flag and no numbers."""
    own = ({"method": word, "flag": f"left out: {reason}"} for word, reason in unfit.items())
    return [dict.fromkeys(protocols.columns()) | facts | one for one in own]


def rows(cells: Sequence[Cell]) -> list[dict]:
    """One row per cell, with the null of its own curve."""
    curves = cells_by_curve(cells)
    baselines = {
        _place(cell.facts, label(cell.facts)): cell for cell in cells if is_baseline(cell.facts)
    }
    made = []
    for cell, parts in zip(cells, by_part(cells), strict=True):
        shares = protocols.find(cell.facts["protocol"]).beside(cell, parts)
        one = row(cell) | over_baselines(cell, baselines) | null_for_nan(shares)
        terms = null(cell, curves[_targets_of_curve(one)])
        if terms is not None and one["nll"] is not None:
            one |= _against(terms, cell)
        made.append(one)
    return made


def over_baselines(cell: Cell, known: Mapping[tuple, Cell]) -> dict:
    """Columns of the gain over each baseline in nats per token, paired by document, beyond L."""
    facts, columns = cell.facts, {}
    if facts["length"] <= facts["train_length"]:
        return columns
    for name in BASELINES:
        other = known.get(_place(facts, name))
        if other is not None and other.nats is not cell.nats and np.isfinite(other.nats).all():
            gain = paired(other.nats, cell.nats, cell.tokens)
            ends = {"": gain.mean, "_low": gain.low, "_high": gain.high}
            columns |= {f"over_{name}{end}": value for end, value in ends.items()}
    return null_for_nan(columns)


def _place(facts: Mapping, method: str) -> tuple:
    """Columns that must be equal for a baseline to score the same targets of the same run."""
    names = ("evaluation", "run", "seed", "step", "protocol", "length", "part", "token_hash")
    return method, *(facts[name] for name in names)


def cells_by_curve(cells: Sequence[Cell]) -> dict[tuple, dict[tuple[str, int], Cell]]:
    """Cells by curve and targets, then by protocol and length."""
    by_curve: dict[tuple, dict[tuple[str, int], Cell]] = {}
    for cell in cells:
        key = cell.facts["protocol"], cell.facts["length"]
        by_curve.setdefault(_targets_of_curve(cell.facts), {})[key] = cell
    return by_curve


def _targets_of_curve(facts: Mapping) -> tuple:
    return *curve_of(facts), facts["part"], facts["token_hash"]


def null(cell: Cell, curve: Mapping[tuple[str, int], Cell]) -> Terms | None:
    """Null of a cell, as its protocol defines it: the score of a model that never uses more than
    L."""
    protocol, facts = protocols.find(cell.facts["protocol"]), cell.facts
    if protocol.has_null and facts["length"] <= facts["train_length"]:
        return [(1.0, cell.nats, cell.tokens)]
    return protocol.null(facts["train_length"], cell, curve)


def _against(terms: Terms, cell: Cell) -> dict:
    """Columns of the null and the gain over it, with intervals over documents."""
    value = combined(terms)
    if not np.isfinite(value.mean):
        return {}
    gain = combined([*terms, (-1.0, cell.nats, cell.tokens)])
    if len(terms) == 1 and np.array_equal(terms[0][2], cell.tokens):  # the same targets
        gain = paired(terms[0][1], cell.nats, cell.tokens)
    per_byte = per_byte_of(cell)
    columns = {"null_nll": value.mean, "null_low": value.low, "null_high": value.high}
    if per_byte:
        ends = {"gain_bpb": gain.mean, "gain_low": gain.low, "gain_high": gain.high}
        columns |= {name: end * per_byte for name, end in ends.items()}
    return null_for_nan(columns)


def beyond_trained(cell: Cell, cells: Sequence[Cell]) -> float | None:
    """Null at places beyond L, in nats per token, of a cell with losses by place."""
    facts = cell.facts
    curve = cells_by_curve(cells)[_targets_of_curve(facts)]
    terms = protocols.find(facts["protocol"]).null(facts["train_length"], cell, curve)
    if terms is None:
        return None
    _, nats, tokens = terms[-1]
    return float(nats.sum() / tokens.sum())


def write(
    folder: Path,
    cells: Sequence[Cell],
    earlier: Record | None = None,  # if already read
    left_out: Sequence[dict] = (),
) -> tuple[list[Cell], list[dict]]:
    """Add cells to the record of all evaluations of a run; return all cells, and rows of the new.

    New cells come first and replace those of the same evaluation and checkpoint. sums.parquet has
    the sums, curves.csv and curves.jsonl the rows computed from them.
    """
    earlier = earlier_record(folder) if earlier is None else earlier
    new = {_asked_together(cell.facts) for cell in cells}
    every = [*cells, *(c for c in earlier.cells if _asked_together(c.facts) not in new)]
    others = (one for one in earlier.left_out if _asked_together(one) not in new)
    unknown = [cell for cell in earlier.unknown if _asked_together(cell.facts) not in new]
    record = Record(every, [*left_out, *others], unknown)
    write_record(folder, record)
    of_cells, empty = rows(every), dict.fromkeys(protocols.columns())
    made = [*of_cells, *(empty | one for one in record.left_out)]
    lines = "".join(json.dumps(one, allow_nan=False) + "\n" for one in made)
    write_atomically(folder / "curves.jsonl", lines)
    write_csv(folder / "curves.csv", list(dict.fromkeys(n for one in made for n in one)), made)
    return every, of_cells[: len(cells)]


def _asked_together(facts: Mapping) -> tuple:
    return facts["evaluation"], facts["step"]


def earlier_record(folder: Path) -> Record:
    """Read the record in an `eval/` folder, whose run may have had another name; a damaged one is
    renamed, with a warning."""
    if not exists(folder):
        return NOTHING
    run = {"run": printable(folder.parent.resolve().name)}
    try:
        record = read_record(folder)
    except Damaged as damage:
        kept = (folder / SUMS_FILE).rename(folder / f"{SUMS_FILE}.damaged")
        warn(f"{damage}: the rows of other evaluations are lost; the file is kept as {kept}")
        return NOTHING
    cells, unknown = (
        [cell._replace(facts=cell.facts | run) for cell in part]
        for part in (record.cells, record.unknown)
    )
    return Record(cells, [one | run for one in record.left_out], unknown)


def read_cells(folder: Path) -> list[Cell]:
    """Read the cells of every evaluation of a run."""
    return read_record(folder).cells


def of_evaluation(cells: Sequence[Cell], name: str = "") -> list[Cell]:
    """Cells of one evaluation: the named one, else that of the run's held-out text, else the
    newest."""
    names = list(dict.fromkeys(cell.facts["evaluation"] for cell in cells))
    if not names:
        raise DataError("it holds no cell of a protocol that this checkout has")
    if name and name not in names:
        raise DataError(f"there is no evaluation {name!r}; have: {', '.join(names)}")
    chosen = name or next((n for n in (HELD_OUT, *names) if n in names), "")
    return [cell for cell in cells if cell.facts["evaluation"] == chosen]
