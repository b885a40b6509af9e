"""Retrieval accuracy in a report: lines, a map by distance, oracles, reach and order."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posenc_jax.display import Table, decimal
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import style
from posenc_jax.plots.answers import Found, Interval, found_and_order
from posenc_jax.report import figures
from posenc_jax.report.runs import Frame, ReportData

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FEWEST_ANSWERS = 20  # per cell of the map; with fewer the accuracy is too uncertain
FINDS = 0.1  # found beyond L from which a method is drawn


class Answers(NamedTuple):
    """Accuracy of every method of every group and seed."""

    gaps: Frame  # protocol `gap`
    trained: int  # L of all runs but the oracles
    longest: int
    oracles: Sequence[str]  # groups trained at the longest length; none where that is L
    names: Mapping[str, str]  # of groups: the encoding where it is unique among them
    best: Mapping[tuple[str, str], float]  # accuracy of group and method there, best first


def collect(data: ReportData) -> Answers | None:
    """Answers of protocol `answers`; None where none were scored."""
    scored = data.points[data.points.accuracy.notna()]
    points = scored[scored.protocol == "answers"]
    if points.empty:
        return None
    trained, longest = _lengths(points)
    far = points[(points.trained >= longest) & (points.length == longest)]
    oracles = list(far[far.method == "none"].group.unique()) if trained < longest else []
    names = short_names(data, points)
    names = {g: f"{name}, oracle" if g in oracles else name for g, name in names.items()}
    gaps = scored[scored.protocol == "gap"]
    means = points[points.length == longest].groupby(["group", "method"]).accuracy.mean()
    ordered = sorted(means.items(), key=lambda item: (-item[1], figures.plainness(item[0][1])))
    best = {(str(group), str(method)): float(value) for (group, method), value in ordered}
    return Answers(gaps, trained, longest, oracles, names, best)


def _lengths(points: Frame) -> tuple[int, int]:
    """L of all runs but the oracles, and the longest length."""
    longest = int(points.length.max())
    beyond = points[points.trained < longest]
    return int(beyond.trained.min()) if len(beyond) else longest, longest


def short_names(data: ReportData, points: Frame) -> dict[str, str]:
    """Names of the groups of some rows: the encoding where it is unique, or a label."""
    longest = points.length.max()
    labels = {run.group for run in data.runs if run.config.label}
    groups = points[["group", "encoding", "trained"]].drop_duplicates("group")
    known = groups[~groups.group.isin(labels)].copy()
    known["oracle"] = known.trained >= longest  # shown in the name
    unique = ~known.duplicated(["encoding", "oracle"], keep=False)
    longer = known.group[known.group != known.encoding]
    short = known.group.str.removeprefix(_shared(list(longer), set(known.encoding)))
    named = dict(zip(known.group, known.encoding.where(unique, short), strict=True))
    return {group: named.get(group, group) for group in groups.group}


def _shared(groups: list[str], encodings: set[str]) -> str:
    """Common prefix of all names, such as `variables-`; empty if it contains an encoding."""
    start = os.path.commonprefix(groups)
    start = start[: start.rfind("-") + 1]
    names_encoding = any(word in encodings for word in start.split("-"))
    return "" if names_encoding or len(groups) < 2 else start


def grid(results: Answers) -> tuple[np.ndarray, list[str], list[str]]:
    """Accuracy by method and distance to the answer, with the names of rows and columns.

    Rows are ordered by accuracy at the longest length. One row is the mean of all windows of L.
    """
    parts = sorted(results.gaps.part.unique(), key=lambda part: int(part.partition("-")[0]))
    means = results.gaps.groupby(["group", "method", "part"]).accuracy.mean()
    rows = {
        pair: tuple(means.get((*pair, part), np.nan) for part in parts)
        for pair in results.best
        if pair in means.index.droplevel("part")
    }
    kept = figures.distinct(rows)
    oracles = [pair for pair in rows if pair[0] in results.oracles]
    others = [pair for pair in rows if pair[0] not in results.oracles]
    pairs = [pair for pair in oracles if pair[1] == "none"]
    pairs += [p for p in others if p[1] == "none" or p[1] != "window" and p in kept]
    windows = [rows[pair] for pair in others if pair[1] == "window"]
    names = [style.with_method(results.names[group], method) for group, method in pairs]
    values = [rows[pair] for pair in pairs]
    if windows:
        names.append("windows of L (mean)")
        values.append(tuple(np.mean(windows, axis=0)))
    orderless = results.gaps.groupby("part").orderless.mean()
    if orderless.notna().any():
        names.append("no order: one of the settings seen")
        values.append(tuple(orderless.get(part, np.nan) for part in parts))
    unknown = parts_with_few_answers(results.gaps)
    return np.where([part in unknown for part in parts], np.nan, values), names, parts


def claim(results: Answers) -> str:
    """The best method at the longest length, apart from oracles and baselines."""
    ranked = [p for p in results.best if p[0] not in results.oracles and p[1] not in BASELINES]
    if not ranked:
        return ""
    group, method = ranked[0]
    name = style.with_method(results.names[group], method)
    return f"{name} answers most at {results.longest:,} tokens, trained at L = {results.trained:,}"


def parts_with_few_answers(points: Frame) -> set[str]:
    """Parts with too few answers to show an accuracy."""
    counts = points.groupby("part").answers.max()
    return {str(part) for part in counts.index[counts < FEWEST_ANSWERS]}


class Ordered(NamedTuple):
    """What a method finds beyond L and how it orders it, by seed; order may be undefined."""

    name: str
    found: Sequence[float]  # beyond L, freed of guesses
    order: Sequence[float]  # beyond L, of the pairs held
    held: Sequence[float]  # share of the pairs
    near: Sequence[float]  # share answered with the last of two settings at L
    hard: Sequence[float]  # the same of settings that are hard to tell apart


def ordered(data: ReportData) -> tuple[list[Ordered], int] | None:
    """Methods by order beyond L, best first, and the longest length; None if none were asked."""
    points = data.points
    beyond = points[(points.part == "beyond") & (points.trained < points.length)]
    if not {"found", "last_of_two"} <= set(beyond.protocol):
        return None
    longest, names, rows = int(beyond.length.max()), short_names(data, beyond), []
    far = beyond[beyond.length == longest]
    near = points[(points.protocol == "last_of_two") & (points.length == points.trained)]
    for (group, method), own in far.groupby(["group", "method"], sort=False):
        pairs = own[own.protocol == "last_of_two"]
        at_trained = near[(near.group == group) & (near.method == method)]
        name = style.with_method(names[group], str(method))
        by_part = (at_trained[at_trained.part == part].accuracy for part in ("within", "hard"))
        found = own[own.protocol == "found"].found.dropna()
        rows.append(Ordered(name, found, pairs.order.dropna(), pairs.held, *by_part))
    return sorted(rows, key=lambda row: (-(mean(row.order) or 0), -(mean(row.found) or 0))), longest


def table_of_order(rows: Sequence[Ordered]) -> Table:
    head = ["", "order beyond L", "held", "found beyond L", "last of two at L", "hard cell at L"]
    body = []
    for row in rows:
        values = map(mean, (row.order, row.held, row.found, row.near, row.hard))
        body.append([row.name, *(decimal(value, 2) for value in values)])
    return Table("", head, body)


def mean(values: Sequence[float]) -> float | None:
    """The mean over seeds; None without a value."""
    return float(np.mean(values)) if len(values) else None


def picture_of_order(rows: Sequence[Ordered], longest: int) -> "Figure":
    """Found and order beyond L of every method that finds anything, one below the other."""
    shown = [row for row in rows if (mean(row.found) or 0) > FINDS]
    marks = [
        Found(row.name, *(_with_ends(values) for values in (row.found, row.order))) for row in shown
    ]
    return found_and_order(marks, longest)


def _with_ends(values: Sequence[float]) -> Interval | None:
    """The mean over seeds, with a 95% interval of three or more."""
    centre = mean(values)
    return None if centre is None else over_seeds(values) or (centre, None, None)
