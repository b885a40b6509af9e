"""The runs of a report, read from their folders, finished or not."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from posenc_jax.config.compare import experiment, without_seed
from posenc_jax.config.resolve import TOKENIZER
from posenc_jax.config.schema import Training
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.cells import Cell, label, targets_of
from posenc_jax.evaluation.sums import exists, read_record
from posenc_jax.evaluation.table import counts
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runs.subject import run_config
from posenc_jax.runs.workdir import Workdir, data_in_words
from posenc_jax.runtime.errors import NOT_FINITE, DataError, OtherConfig, Stop
from posenc_jax.runtime.files import shortest
from posenc_jax.runtime.terminal import printable
from posenc_jax.sweeping import rates

Frame = Any  # a pandas.DataFrame; its types are too loose to check
OF_RUN = ["id", "name", "group", "encoding", "seed", "trained"]
ENDS = [f"{name}_{end}" for name in ("bpb", "gain_bpb") for end in ("low", "high")]
Value = TypeVar("Value")
Curve = Sequence[tuple[int, float]]  # a value by step


@dataclass(frozen=True)
class Run:
    """A run, and one evaluation of its newest checkpoint."""

    folder: Path
    config: Training
    experiment: Mapping[str, Any]  # fields with the same value in all runs of a group
    state: str
    step: int
    diverged: bool
    learned: Mapping[str, Curve]  # loss, valid_loss, valid_bpb
    digest: str
    command: str
    data: str
    cells: Sequence[Cell] = ()
    unfit: Sequence[Mapping[str, Any]] = ()  # rows of methods that do not fit the encoding
    group: str = ""
    left_out: str = ""  # reason for which no mean over seeds may include it

    @property
    def id(self) -> str:
        return printable(str(self.folder))

    @property
    def name(self) -> str:
        return printable(self.folder.name)

    @property
    def encoding(self) -> str:
        return self.config.encoding.name

    @property
    def trained(self) -> int:
        return self.config.train_length

    @property
    def is_adopted(self) -> bool:
        """A pretrained model, whose training is unknown."""
        return self.config.data.source.kind() == "unknown"

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def evaluated_at(self) -> int | None:
        return self.cells[0].facts["step"] if self.cells else None

    @property
    def in_means(self) -> bool:
        return bool(self.cells) and not self.left_out

    @cached_property
    def kind(self) -> str:
        """Key of its group: runs of one kind differ only in the seed."""
        return json.dumps(self.experiment, sort_keys=True, default=str)

    @cached_property
    def read(self) -> str:
        """Key of the text and the tokens trained on, which comparable losses share."""
        budget = ("steps", "batch_size", "train_length")
        fields = self.experiment.items()
        return json.dumps(
            {name: value for name, value in fields if name.startswith("data.") or name in budget},
            default=str,
        )


@dataclass(frozen=True)
class ReportData:
    """The runs of a report and their numbers."""

    runs: Sequence[Run]
    points: Frame  # one row per run, protocol, method and length
    choices: Frame  # one row per rate tried by a sweep
    notes: Sequence[str]

    @cached_property
    def groups(self) -> list[str]:
        """Groups with an evaluation."""
        return list(dict.fromkeys(run.group for run in self.runs if run.cells))

    def only(self, wanted: Mapping[Path, Collection[tuple[str, int]]]) -> "ReportData":
        """With these methods and lengths of each run alone."""
        runs = [
            replace(
                run,
                cells=[c for c in run.cells if (label(c.facts), c.facts["length"]) in own],
            )
            for run in self.runs
            if (own := wanted.get(run.folder)) is not None
        ]
        kept = {run.id: wanted[run.folder] for run in runs}
        rows = zip(self.points.id, self.points.method, self.points.length, strict=True)
        chosen = [id_ in kept and (method, length) in kept[id_] for id_, method, length in rows]
        return replace(self, runs=runs, points=self.points[chosen])


def read_runs(folders: Iterable[Path], evaluation: str = "") -> ReportData:
    """Read one evaluation of each run: the named one, else that of its own held-out text."""
    folders = list(folders)
    choices, notes = _choices(folders)
    runs: list[Run] = []
    edited: list[OtherConfig] = []
    for folder in _final(folders, choices):
        try:
            run = _trained(folder, notes)
        except (Stop, AttributeError, KeyError, TypeError, ValueError) as error:
            notes.append(f"skipped: {folder.name}: {error}")
            edited += [error] if isinstance(error, OtherConfig) else []
            continue
        cells, note, unfit = _evaluated(folder, evaluation)
        notes += [f"{run.name}: {note}"] if note else []
        runs.append(replace(run, cells=cells, unfit=unfit))
    if edited and not runs:
        raise edited[0]
    if not runs:
        raise DataError(
            f"no run in {', '.join(map(str, folders))}: the folder of a run has a config.json; the "
            "sweep.log of a sweep's job gives the reason if it has none"
            + "".join(f"; {n}" for n in notes)
        )
    runs = comparable(grouped(runs), notes)
    notes += [*_diverged(runs), *_left_out(runs)]
    means = [run for run in runs if run.in_means]
    columns = dict.fromkeys([*OF_RUN, *protocols.columns(), *ENDS, "counts"])
    return ReportData(
        runs,
        pd.DataFrame([row for run in means for row in _points(run)], columns=list(columns)),
        choices,
        notes,
    )


def runs_in(folders: Iterable[Path]) -> list[Path]:
    """Folders of runs, including the runs inside folders of sweeps, save trials of a rate that was
    not chosen."""
    folders = list(folders)
    return _final(folders, _choices(folders)[0])


def _final(folders: Iterable[Path], choices: Frame) -> list[Path]:
    runs: dict[Path, None] = {}
    trials = set(choices[choices.chosen == ""].id)
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder of a run or a sweep")
        run_folders = [folder] if (folder / "config.json").exists() else []
        for run in run_folders or sorted(path.parent for path in folder.glob("*/config.json")):
            if str(run.resolve()) not in trials:
                runs[run.resolve()] = None
    return list(runs)


def _choices(folders: Iterable[Path]) -> tuple[Frame, list[str]]:
    """Rates tried by tuned sweeps, read from their folders, and notes on damaged tables of them."""
    rows: list[dict] = []
    notes: list[str] = []
    for folder in map(Path, map(os.path.realpath, folders)):  # a loop of links has none
        try:
            choices = rates.read_choices(folder)
        except Stop as error:
            notes.append(str(error))
            continue
        rows += [{"sweep": str(folder), "id": str(folder / row["run"])} | row for row in choices]
    return pd.DataFrame(rows, columns=["sweep", "id", *rates.CHOICES_COLUMNS]), notes


def _trained(folder: Path, notes: list[str]) -> Run:
    """A run without its evaluation."""
    workdir = Workdir(folder)
    config = run_config(folder)
    fields = experiment(config)
    tokenizer = folder / TOKENIZER
    if tokenizer.is_file():  # its path differs by run once the named file is gone
        fields["data.tokenizer"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()[:8]
    status = _or_note(workdir.read_status, {}, notes)
    lines = _or_note(lambda: read_metrics(folder / "metrics.jsonl"), [], notes)
    learned = {
        name: [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        for name in ("loss", "valid_loss", "valid_bpb")
    }
    return Run(
        folder,
        config,
        fields,
        state=status.get("state", "unknown"),
        step=status.get("step") or (lines[-1]["step"] if lines else 0),
        diverged=status.get("code") == NOT_FINITE,
        learned=learned,
        digest=status.get("digest", ""),
        command=status.get("command", ""),
        data=data_in_words(status.get("data", {})),
    )


def _or_note(read: Callable[[], Value], otherwise: Value, notes: list[str]) -> Value:
    try:
        return read()
    except Stop as error:
        notes.append(str(error))
        return otherwise


def _evaluated(folder: Path, evaluation: str) -> tuple[list[Cell], str, list[dict]]:
    """Cells of the newest checkpoint, a note on other evaluations, and the methods left out."""
    if not exists(folder / "eval"):
        return [], "not evaluated yet", []
    try:
        record = read_record(folder / "eval")
        cells = records.of_evaluation(record.cells, evaluation)
    except Stop as error:
        return [], str(error), []
    last = max(cell.facts["step"] for cell in cells)
    shown = cells[0].facts["evaluation"]
    others = {cell.facts["evaluation"] for cell in record.cells} - {shown}
    note = ""
    if others and not evaluation:
        note = (
            f"shows its evaluation {shown!r}; choose another with --evaluation=NAME: "
            f"{', '.join(sorted(others))}"
        )
    left_out = [row for row in record.left_out if (row["evaluation"], row["step"]) == (shown, last)]
    return [cell for cell in cells if cell.facts["step"] == last], note, left_out


def grouped(runs: Sequence[Run]) -> list[Run]:
    """Name the group of each run; runs that differ only in the seed form a group.

    Its name is the label of all its runs; else the encoding, if no other unlabelled group has it;
    else the name of a run without its seed and without rates shared by all groups of the encoding.
    Where names clash, differing fields follow.
    """
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.kind, []).append(run)
    names = {kind: _label(members) for kind, members in kinds.items()}
    unlabelled = [members[0] for kind, members in kinds.items() if not names[kind]]
    names = {kind: name or _name(kinds[kind], unlabelled) for kind, name in names.items()}
    suffixes: dict[str, str] = {}
    for name in set(names.values()):
        clash = [kind for kind in kinds if names[kind] == name]
        words = _differences([kinds[kind][0].experiment for kind in clash])
        suffixes |= zip(clash, words, strict=True)
    return [replace(run, group=names[run.kind] + suffixes[run.kind]) for run in runs]


def _label(members: Sequence[Run]) -> str:
    labels = {run.config.label for run in members}
    return printable(labels.pop()) if len(labels) == 1 else ""


def _name(members: Sequence[Run], unlabelled: Sequence[Run]) -> str:
    """Name of a group without a label; `unlabelled` has a run of every such group."""
    encoding = members[0].encoding
    same = [run for run in unlabelled if run.encoding == encoding]
    if len(same) == 1:
        return encoding
    name = without_seed(min(run.name for run in members))
    for rate in rates.CHOSEN:
        if len({run.experiment.get(rate) for run in same}) == 1:
            name = re.sub(rf"(?:^|-){rate}=[\d.e-]*\d", "", name)
    return name


def _differences(experiments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Suffix of each experiment: as many differing fields as make all suffixes unique."""
    if len(experiments) == 1:
        return [""]
    fields = sorted({field for experiment in experiments for field in experiment})
    differing = [f for f in fields if any(e.get(f) != experiments[0].get(f) for e in experiments)]
    names = {f: shortest({str(e.get(f)) for e in experiments}) for f in differing}
    shown = [[(f, names[f][str(e.get(f))]) for f in differing] for e in experiments]
    words = [""] * len(experiments)
    for count in range(1, len(differing) + 1):
        words = [
            ", ".join(f"{field.rpartition('.')[2]}={value}" for field, value in own[:count])
            for own in shown
        ]
        if len(set(words)) == len(words):
            break
    return [f" ({word})" for word in words]


def comparable(runs: Sequence[Run], notes: list[str]) -> list[Run]:
    """Leave out runs that must not enter a mean over seeds.

    These are runs whose group was evaluated at a later step, duplicates of a seed, and runs whose
    targets differ.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.evaluated_at is not None:
            groups.setdefault(run.group, []).append(run)
            if run.evaluated_at != run.config.steps:
                notes.append(
                    f"{run.name}: evaluated at step {run.evaluated_at} of {run.config.steps}"
                )
    reasons: dict[str, str] = {}
    for members in groups.values():
        reasons |= _reasons(members)
        notes += [
            f"{run.name} is not in the means: {reasons[run.id]}"
            for run in members
            if run.id in reasons
        ]
    return [replace(run, left_out=reasons.get(run.id, "")) for run in runs]


def _reasons(members: Sequence[Run]) -> dict[str, str]:
    """Runs of a group to be left out, each with its reason."""
    newest = max(run.cells[0].facts["step"] for run in members)
    seeds: dict[int, Run] = {}
    reasons: dict[str, str] = {}
    for run in members:
        if run.evaluated_at != newest:
            reasons[run.id] = f"the rest of its group was evaluated at step {newest}"
        elif run.seed in seeds:
            reasons[run.id] = f"the same experiment and seed as {seeds[run.seed].name}"
        else:
            seeds[run.seed] = run
    names = ("protocol", "length", "part")
    targets = {
        run.id: {tuple(c.facts[name] for name in names): targets_of(c.facts) for c in run.cells}
        for run in seeds.values()
    }
    usual = {
        place: most_common(own[place] for own in targets.values() if place in own)
        for place in set().union(*targets.values())
    }
    for id_, own in targets.items():
        if any(usual[place] != scored for place, scored in own.items()):
            reasons[id_] = "its targets differ from the rest of its group"
    return reasons


def most_common(values: Iterable[Any]) -> Any:
    """Most frequent value, the first of them on a tie."""
    listed = list(values)
    return max(dict.fromkeys(listed), key=listed.count) if listed else None


def _diverged(runs: Iterable[Run]) -> list[str]:
    """Notes on groups without a rank, because the training of a seed was not finite."""
    return [
        f"{run.name}: its training was not finite, so {run.group} is not ranked; its curves "
        "are means over the other seeds"
        for run in runs
        if run.diverged
    ]


def _left_out(runs: Iterable[Run]) -> list[str]:
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


def _points(run: Run) -> list[dict]:
    """Rows of a run, one per cell, by length."""
    rows = [row for row in records.rows(run.cells) if not protocols.find(row["protocol"]).by_place]
    return [
        row
        | {name: getattr(run, name) for name in OF_RUN}
        | {f"bpb_{end}": _in_bits(row, f"nll_{end}") for end in ("low", "high")}
        | {f"gain_bpb_{end}": row[f"gain_{end}"] for end in ("low", "high")}
        | {"counts": counts(row)}
        for row in sorted(rows, key=lambda row: row["length"])
    ]


def _in_bits(row: Mapping[str, Any], value: str) -> float | None:
    known = row.get(value) is not None and row["bpb"] is not None
    return row[value] * row["bpb"] / row["nll"] if known else None
