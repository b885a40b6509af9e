"""The numbers of a report: its runs, their rows, rankings, n-grams and tuned rates."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.evaluation import ngrams, protocols, records
from posenc_jax.evaluation.cells import BASELINES, label
from posenc_jax.evaluation.protocols.latest import ALL
from posenc_jax.evaluation.statistics import smooth
from posenc_jax.evaluation.table import counts
from posenc_jax.report.ranking import Tables, ranked
from posenc_jax.report.runs import Run, read_runs
from posenc_jax.runtime.errors import Stop
from posenc_jax.sweeping import rates

Frame = Any  # a pandas.DataFrame; its types are too loose to check
OF_RUN = ["id", "name", "group", "encoding", "seed", "trained"]
OF_CELL = ["protocol", "method", "extension", "scale", "window", "part"]
VALUES = ["bpb", "ppl", "nll", "nll_se", "null_bpb", "tokens", "documents", "windows"]
VALUES += ["token_hash", "answers", "accuracy", "ceiling", "chance", "orderless"]


class Answers(NamedTuple):
    """Accuracy of every method of every group and seed."""

    points: Frame  # protocol `answers`, with accuracy `relative` to the ceiling
    gaps: Frame  # protocol `gap`
    trained: int  # L of all runs but the oracles
    longest: int
    oracles: Sequence[str]  # groups trained at the longest length; none where that is L
    names: Mapping[str, str]  # of groups: the encoding where it is unique among them
    best: Mapping[tuple[str, str], float]  # accuracy of group and method there, best first


class Ordered(NamedTuple):
    """Reach and order by group, method, length and seed.

    Reach is the accuracy without an older setting, relative to the ceiling; order the accuracy with
    one, rescaled from 0 for a reader without order to 1.
    """

    points: Frame  # columns group, method, length, seed, reach, order
    trained: int  # L of all runs but the oracles
    longest: int


@dataclass(frozen=True)
class Gathered:
    """The data of a report."""

    runs: Sequence[Run]
    points: Frame  # one row per run, protocol, method and length
    places: Frame  # one row per run, protocol, method and place of the longest window
    ranking: Tables
    plain_ranking: Tables  # without extensions
    notes: list[str]
    yardsticks: Frame  # one row per n-gram and set of targets
    choices: Frame  # one row per rate tried by a sweep

    @property
    def groups(self) -> list[str]:
        """Groups with an evaluation, in the order that numbers them in the page's controls."""
        return list(dict.fromkeys(run.group for run in self.runs if run.cells))

    def gid(self, group: str) -> str:
        """Name of the lines and rows of a group, which the page's controls hide."""
        return f"group-{self.groups.index(group)}"

    @cached_property
    def answers(self) -> Answers | None:
        """Answers of protocol `answers`; None where none were scored."""
        scored = self.points[self.points.accuracy.notna()]
        return _answers(self.runs, scored) if "answers" in set(scored.protocol) else None

    @cached_property
    def order(self) -> Ordered | None:
        """Reach and order; None where either protocol is missing."""
        reach = self.points[self.points.protocol == "reach"]
        latest = self.points[(self.points.protocol == "latest") & (self.points.part == ALL)]
        return None if reach.empty or latest.empty else _order(reach, latest)


def gather(folders: Iterable[Path], evaluation: str = "") -> Gathered:
    """Read one evaluation of each run: the named one, else that of its own held-out text."""
    folders, notes = list(folders), []
    choices = choices_in(folders, notes)
    trials = set(choices[choices.chosen == ""].id)
    runs = read_runs(folders, evaluation, notes, set(choices.sweep), trials)
    notes += [*diverged(runs), *left_out(runs)]
    means = [run for run in runs if run.in_means]
    ranking, skipped = ranked(runs)
    return Gathered(
        runs,
        pd.DataFrame(
            [row for run in means for row in points_of(run)],
            columns=[*OF_RUN, *OF_CELL, "length", *VALUES, "counts"],
        ),
        pd.DataFrame(
            [row for run in means for row in places_of(run)],
            columns=[*OF_RUN, *OF_CELL, "length", "place", "nll"],
        ),
        ranking,
        ranked(runs, plain=True)[0],
        notes + skipped,
        yardsticks_of(runs),
        choices,
    )


def choices_in(folders: Iterable[Path], notes: list[str]) -> Frame:
    """Rates tried by tuned sweeps, read from their folders."""
    rows = []
    for folder in map(Path.resolve, folders):
        try:
            choices = rates.read_choices(folder)
        except Stop as error:
            notes.append(str(error))
            continue
        rows += [{"sweep": str(folder), "id": str(folder / row["run"])} | row for row in choices]
    return pd.DataFrame(rows, columns=["sweep", "id", *rates.CHOICES_COLUMNS])


def diverged(runs: Iterable[Run]) -> list[str]:
    """Notes on groups without a rank, because the training of a seed was not finite."""
    return [
        f"{run.name}: its training was not finite, so {run.group} is not ranked; its curves "
        "are means over the other seeds"
        for run in runs
        if run.diverged
    ]


def left_out(runs: Iterable[Run]) -> list[str]:
    """Notes on requested methods that do not fit the encoding, one per reason."""
    rows = pd.DataFrame(
        [(row["flag"], row["method"], run.group) for run in runs for row in run.unfit],
        columns=["reason", "method", "group"],
    )
    return [
        f"{', '.join(unfit.method.unique())} {reason}; not evaluated for "
        + ", ".join(unfit.group.unique())
        for reason, unfit in rows.groupby("reason", sort=False)
    ]


def points_of(run: Run) -> list[dict]:
    """Rows of a run, one per cell, by length."""
    rows = [row for row in records.rows(run.cells) if not protocols.find(row["protocol"]).by_place]
    return [
        _names(run, row)
        | {name: row[name] for name in ("length", *VALUES) if name in row}
        | {"null_bpb": None if row["gain_bpb"] is None else row["bpb"] + row["gain_bpb"]}
        | {"counts": counts(row)}
        for row in sorted(rows, key=lambda row: row["length"])
    ]


def places_of(run: Run) -> list[dict]:
    """Loss of a run at the places of its longest windows, averaged over neighbouring places."""
    rows = []
    for cell in run.cells:
        by_place = protocols.find(cell.facts["protocol"]).by_place
        if by_place and np.all(np.isfinite(cell.sums.by_place)):
            names = _names(run, cell.facts) | {"length": cell.facts["length"]}
            windows = int(cell.sums.windows[0])
            means = zip(*smooth(cell.sums.by_place / windows, windows), strict=True)
            rows += [names | {"place": place, "nll": nll} for place, nll in means]
    return rows


def _names(run: Run, facts: dict) -> dict[str, Any]:
    of_run = {name: getattr(run, name) for name in OF_RUN}
    of_cell = {name: facts[name] for name in OF_CELL if name in facts}
    return of_run | of_cell | {"method": label(facts)}


def yardsticks_of(runs: Iterable[Run]) -> Frame:
    """N-grams of all runs, without repeats for the same targets and the same training text."""
    rows = []
    for run in runs:
        with suppress(Stop):
            of_run = ngrams.read_yardsticks(run.folder / "eval")
            rows += [row | {"read": run.read} for row in of_run]
    frame = pd.DataFrame(rows, columns=[*ngrams.YARDSTICK_COLUMNS, "read"])
    return frame.drop_duplicates(["token_hash", "order", "read", "counted"])


def _answers(runs: Sequence[Run], scored: Frame) -> Answers:
    points = scored[scored.protocol == "answers"]
    points = points.assign(relative=points.accuracy / points.ceiling.fillna(1.0))
    trained, longest = lengths_of(points)
    far = points[(points.trained >= longest) & (points.length == longest)]
    oracles = list(far[far.method == "none"].group.unique()) if trained < longest else []
    labels = {run.group for run in runs if run.config.label}
    names = _short_names(points, longest, labels)
    names = {g: f"{name}, oracle" if g in oracles else name for g, name in names.items()}
    gaps = scored[scored.protocol == "gap"]
    means = points[points.length == longest].groupby(["group", "method"]).accuracy.mean()
    ordered = sorted(means.items(), key=lambda item: (-item[1], plainness(item[0][1])))
    best = {(str(group), str(method)): float(value) for (group, method), value in ordered}
    return Answers(points, gaps, trained, longest, oracles, names, best)


def lengths_of(points: Frame) -> tuple[int, int]:
    """L of all runs but the oracles, and the longest length."""
    longest = int(points.length.max())
    beyond = points[points.trained < longest]
    return int(beyond.trained.min()) if len(beyond) else longest, longest


def _short_names(points: Frame, longest: int, labels: set[str]) -> dict[str, str]:
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


def _order(reach: Frame, latest: Frame) -> Ordered:
    keys = ["group", "method", "length", "seed", "trained"]
    reach = reach.assign(reach=reach.accuracy / reach.ceiling)[[*keys, "reach"]]
    rescaled = (latest.accuracy - latest.orderless) / (1 - latest.orderless)
    merged = pd.merge(reach, latest.assign(order=rescaled)[[*keys, "order"]], on=keys)
    return Ordered(merged, *lengths_of(merged))


def plainness(method: str) -> tuple:
    return method != "none", method not in BASELINES, method.startswith("dynamic_"), method
