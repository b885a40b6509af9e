"""The frame of a report: a row per run, method, protocol, part and length, with its verdict; and
estimates of its values over seeds."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.evaluation.cells import label
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import style
from posenc_jax.report.ranking import Rank, rankings
from posenc_jax.report.runs import Frame, read_runs
from posenc_jax.runtime.files import ESCAPED
from posenc_jax.runtime.terminal import warn

Where = Mapping[str, Any]  # columns with the value, the list or the pattern that rows have in them
OPTIONS = ("value", "less", "cell")  # in a selection beside its columns; see `tables.table`
# Columns in which rows of one mean must be equal.
UNLIKE = "evaluation encoding group method protocol part length step".split()
VERDICT = ("verdict", "behind", "p")  # of the ranking at the row's length, with extensions


class Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float
    low: float | None  # 95%, over three seeds or more, else over documents; None: not known
    high: float | None
    values: np.ndarray  # of the seeds


def frame(runs: str | Path | Sequence[str | Path], evaluation: str = "") -> Frame:
    """Rows of one evaluation of runs, given by their folders, that of their sweep, or by files of
    rows: curves.csv, also compressed.

    `line` is the name of a group with a method. Rows of folders have the `group` of their runs,
    which differ in the seed alone, and the verdict on it.
    """
    places = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if files := [place for place in places if place.is_file()]:
        if len(files) < len(places):
            raise ValueError("folders of runs and files of rows are two frames; name one kind")
        rows = pd.concat(map(_of_file, files), ignore_index=True)
        return rows[rows.evaluation == evaluation] if evaluation else rows
    data = read_runs(places, evaluation)
    for note in data.notes:
        warn(note)
    ranks = {
        (protocol, length, rank.group, rank.method): rank
        for protocol, tables in rankings(data.runs).extended.items()
        for length, entries in tables.items()
        for rank in entries
    }
    keys = zip(*(data.points[n] for n in ("protocol", "length", "group", "method")), strict=True)
    found: list[Rank | None] = [ranks.get(key) for key in keys]
    verdicts = {name: [rank and getattr(rank, name) for rank in found] for name in VERDICT}
    pairs = zip(data.points.group, data.points.method, strict=True)
    return data.points.assign(line=[style.with_method(*pair) for pair in pairs], **verdicts)


def _of_file(path: Path) -> Frame:
    rows = pd.read_csv(path, low_memory=False).replace(ESCAPED, r"\1", regex=True)
    rows = rows[rows.extension.notna()]  # the others name methods that were left out
    facts: Frame = rows[["extension", "scale", "window"]].astype(object)
    facts = facts.where(facts.notna(), None).to_dict("records")
    rows = rows.assign(
        method=[label(one) for one in facts], part=rows.part.astype(object).fillna("")
    )
    pairs = zip(rows.encoding, rows.method, strict=True)
    return rows.assign(line=[style.with_method(*pair) for pair in pairs])


def band_of(found: Mapping[Any, Estimate]) -> tuple[list[float], list[float]] | None:
    """The ends of the intervals of all estimates; None where one has none."""
    ends = [(e.low, e.high) for e in found.values() if e.low is not None and e.high is not None]
    return (
        ([low for low, _ in ends], [high for _, high in ends]) if len(ends) == len(found) else None
    )


def selected(rows: Frame, where: Where) -> Frame:
    """The rows with these values in these columns."""
    for name, wanted in where.items():
        if name in OPTIONS:
            continue
        column = rows[name]
        if isinstance(wanted, re.Pattern):
            rows = rows[column.astype(str).str.fullmatch(wanted)]
        elif isinstance(wanted, list | tuple | set):
            rows = rows[column.isin(wanted)]
        else:
            rows = rows[column == wanted]
    return rows


def estimate(rows: Frame, value: str, less: Frame | None = None) -> Estimate | None:
    """The mean of a value over seeds, or of the difference to other rows, paired by seed; None
    where a seed has no value."""
    seeds = _by_seed(rows, value)
    if less is not None:
        seeds = (seeds - _by_seed(less, value)).dropna()
    if seeds.empty or seeds.isna().any():
        return None
    values = seeds.to_numpy(float)
    mean, *interval = over_seeds(values) or (float(values.mean()),)
    ends = [f"{value}_low", f"{value}_high"]
    if not interval and less is None and set(ends) <= set(rows):
        interval = [end for end in rows[ends].mean().tolist() if np.isfinite(end)]
    low, high = interval if len(interval) == 2 else (None, None)
    return Estimate(mean, low, high, values)


def _by_seed(rows: Frame, value: str) -> Frame:
    """A value of each seed; rows that differ in more than the seed have no common mean."""
    if rows.seed.duplicated().any():
        unlike = [name for name in rows if name != value and rows[name].nunique() > 1]
        unlike = [name for name in UNLIKE if name in unlike] or unlike
        raise ValueError(f"a mean of unlike rows: select by {', '.join(unlike)}")
    return rows.set_index("seed")[value].sort_index()


Over = Callable[[Frame, str, Frame | None], Estimate | None]


def estimates(
    frame: Frame, row: Where, columns: Sequence[Where], value: str, over: Over = estimate
) -> list[Estimate | None]:
    """Estimates in a row of a table, or of a line of a figure; None where nothing was measured."""
    found = []
    for column in columns:
        both = {"value": value, **row, **column}
        here, less = selected(frame, both), both.get("less")
        if less is not None:
            less = selected(frame, {**both, **less})
        found.append(None if here.empty else over(here, both["value"], less))
    return found
