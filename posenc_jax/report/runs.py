"""Gather the data of a report from the folders of runs, finished or not."""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.config.compare import experiment, without_seed
from posenc_jax.config.resolve import TOKENIZER
from posenc_jax.evaluation import ngrams, protocols, records
from posenc_jax.evaluation.cells import exists, label, read_record, targets_of
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import smooth
from posenc_jax.evaluation.table import counts
from posenc_jax.report.ranking import Tables, most_common, ranked
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runs.workdir import Workdir, data_in_words, median_speed
from posenc_jax.runtime.errors import NOT_FINITE, DataError, OtherConfig, Stop
from posenc_jax.runtime.terminal import counted
from posenc_jax.sweeping import rates

Frame = Any  # a pandas.DataFrame; its types are too loose to check
OF_RUN = ["id", "name", "group", "encoding", "seed", "trained"]
OF_CELL = ["protocol", "method", "extension", "scale", "window", "part"]
VALUES = ["bpb", "ppl", "nll", "nll_se", "null_bpb", "tokens", "documents", "windows"]
VALUES += ["token_hash", "answers", "accuracy", "ceiling", "chance", "orderless"]


class Gathered(NamedTuple):
    """The data of a report."""

    runs: list[dict[str, Any]]
    points: Frame  # one row per run, protocol, method and length
    places: Frame  # one row per run, protocol, method and place of the longest window
    ranking: Tables
    plain_ranking: Tables  # without extensions
    notes: list[str]
    yardsticks: Frame  # one row per n-gram and set of targets
    choices: Frame  # one row per rate tried by a sweep


def gather(folders: Iterable[Path], evaluation: str = "") -> Gathered:
    """Read one evaluation of each run: the named one, else that of its own held-out text."""
    runs, notes, measured, edited_errors = [], [], {}, []
    folders = list(folders)
    choices = choices_in(folders, notes)
    only_chose = set(choices[choices.chosen == ""].id)
    for folder in runs_in(folders):
        if str(folder) in only_chose and not exists(folder / "eval"):
            continue
        try:
            facts = run_facts(folder, notes)
        except (Stop, AttributeError, KeyError, TypeError, ValueError) as error:
            notes.append(f"skipped: {folder.name}: {error}")
            edited_errors += [error] if isinstance(error, OtherConfig) else []
            continue
        own_cells, note, facts["unfit"] = evaluated(folder, evaluation)
        facts |= {
            "evaluated": bool(own_cells),
            "evaluated_at": own_cells[0].facts["step"] if own_cells else None,
        }
        facts["tuned"] = str(folder.parent) in set(choices.sweep)
        runs.append(facts)
        measured[facts["id"]] = own_cells
        if note:
            notes.append(f"{facts['name']}: {note}")
    if edited_errors and not runs:
        raise edited_errors[0]
    if not runs:
        raise DataError(
            f"no run in {', '.join(map(str, folders))}: the folder of a run has a config.json; the "
            "sweep.log of a sweep's job gives the reason if it has none"
            + "".join(f"; {n}" for n in notes)
        )
    name_groups(runs)
    notes += comparable(runs, measured)
    notes += diverged(runs)
    notes += left_out(runs)
    diverged_groups = {run["group"] for run in runs if run["diverged"]}
    cells = [
        (run, cell)
        for run in runs
        for cell in measured[run["id"]]
        if run["group"] not in diverged_groups
    ]
    ranking, skipped = ranked(cells)
    plain = [(run, cell) for run, cell in cells if label(cell.facts) == "none"]
    points = [row for run in runs for row in points_of(run, measured[run["id"]])]
    places = [row for run in runs for row in places_of(run, measured[run["id"]])]
    return Gathered(
        runs,
        pd.DataFrame(points, columns=[*OF_RUN, *OF_CELL, "length", *VALUES, "counts"]),
        pd.DataFrame(places, columns=[*OF_RUN, *OF_CELL, "length", "place", "nll"]),
        ranking,
        ranked(plain)[0],
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


def yardsticks_of(runs: Iterable[dict]) -> Frame:
    """N-grams of all runs, without repeats for the same targets and the same training text."""
    rows = []
    for run in runs:
        rows_of_run = _or(functools.partial(ngrams.read_yardsticks, Path(run["id"], "eval")), [])
        rows += [row | {"read": run["read"]} for row in rows_of_run]
    frame = pd.DataFrame(rows, columns=[*ngrams.YARDSTICK_COLUMNS, "read"])
    return frame.drop_duplicates(["token_hash", "order", "read", "counted"])


def runs_in(folders: Iterable[Path]) -> list[Path]:
    """Folders of runs, including the runs inside folders of sweeps."""
    runs: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder of a run or a sweep")
        run_folders = [folder] if (folder / "config.json").exists() else []
        for run in run_folders or sorted(path.parent for path in folder.glob("*/config.json")):
            runs[run.resolve()] = None
    return list(runs)


def run_facts(folder: Path, notes: list[str]) -> dict[str, Any]:
    run = Workdir(folder)
    config = run.checked_config()
    assert config is not None
    fields = experiment(config)
    tokenizer = folder / TOKENIZER
    if tokenizer.is_file():  # its path differs by run once the named file is gone
        fields["data.tokenizer"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()[:8]
    status = _or(run.read_status, {}, notes)
    lines = _or(lambda: read_metrics(folder / "metrics.jsonl"), [], notes)
    held_out = [line["valid_bpb"] for line in lines if line.get("valid_bpb") is not None]
    learned = {
        name: [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        for name in ("loss", "valid_loss")
    }
    memory = [line["memory_mib"] for line in lines if line.get("memory_mib")]
    return {
        "id": str(folder),
        "name": folder.name,
        "encoding": config.encoding.name,
        "label": config.label,
        "seed": config.seed,
        "trained": config.train_length,
        "steps": config.steps,
        "size": f"{counted(config.model.layers, 'layer')} of width {config.model.width}",
        "step": status.get("step") or (lines[-1]["step"] if lines else 0),
        "state": status.get("state", "unknown"),
        "diverged": status.get("code") == NOT_FINITE,
        "speed": status.get("speed")
        or median_speed(lines),  # the speed so far of a run in training
        "memory": max(memory, default=None),
        "parameters": status.get("parameters", {}),
        "learned": learned,
        "held_out": held_out[-1] if held_out else None,
        "digest": status.get("digest", ""),
        "command": status.get("command", ""),
        "data": data_in_words(status.get("data", {})),
        "config": str(config),
        "experiment": fields,
        "read": json.dumps(_read(fields), default=str),
    }


def _read(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields that must agree for losses to be comparable: the text and the tokens trained on."""
    budget = ("steps", "batch_size", "train_length")
    return {n: v for n, v in fields.items() if n.startswith("data.") or n in budget}


def name_groups(runs: Sequence[dict]) -> None:
    """Set the group of each run; runs that differ only in the seed form a group.

    Its name is the label of all its runs; else the encoding, if no other unlabelled group has it
    or only one that differs in tuned rates; else the name of a run without its seed and without
    rates shared by all groups of the encoding. Where names clash, differing fields follow.
    """
    kinds: dict[str, list[dict]] = {}
    for run in runs:
        kinds.setdefault(json.dumps(run["experiment"], sort_keys=True, default=str), []).append(run)
    names: dict[str, str] = {}
    for key, members in kinds.items():
        labels = {run["label"] for run in members}
        if len(labels) == 1 and all(labels):
            names[key] = members[0]["label"]
    unnamed = {key: members for key, members in kinds.items() if key not in names}
    for key, members in unnamed.items():
        encoding, tuned = members[0]["encoding"], members[0].get("tuned")
        same = [other[0] for other in unnamed.values() if other[0]["encoding"] == encoding]
        if len(same) == 1:
            names[key] = encoding
        elif len({bool(run.get("tuned")) for run in same}) == len(same) and _alike_but_rates(same):
            names[key] = f"{encoding}, tuned" if tuned else encoding
        else:
            names[key] = without_seed(min(run["name"] for run in members))
            for rate in rates.CHOSEN:
                if len({other["experiment"].get(rate) for other in same}) == 1:
                    names[key] = re.sub(rf"(?:^|-){rate}=[\d.e-]*\d", "", names[key])
    for key, members in kinds.items():
        clash = [other for other in kinds if names[other] == names[key]]
        words = _differences([kinds[other][0]["experiment"] for other in clash])
        for run in members:
            run["group"] = names[key] + words[clash.index(key)]


def _alike_but_rates(runs: Sequence[dict]) -> bool:
    """True if runs differ at most in tuned rates and in the share of text kept for tuning."""
    fields = [
        {n: v for n, v in run["experiment"].items() if n not in rates.CHOSEN}
        | {"data.choose_fraction": None}
        for run in runs
    ]
    return all(other == fields[0] for other in fields)


def _differences(experiments: Sequence[dict]) -> list[str]:
    """Suffix of each experiment: as many differing fields as make all suffixes unique."""
    if len(experiments) == 1:
        return [""]
    names = sorted({field for experiment in experiments for field in experiment})
    differing = [f for f in names if any(e.get(f) != experiments[0].get(f) for e in experiments)]
    words = [""] * len(experiments)
    for count in range(1, len(differing) + 1):
        words = [
            ", ".join(f"{f.rpartition('.')[2]}={experiment.get(f)}" for f in differing[:count])
            for experiment in experiments
        ]
        if len(set(words)) == len(words):
            break
    return [f" ({word})" for word in words]


def comparable(runs: Sequence[dict], measured: dict[str, list[Measured]]) -> list[str]:
    """Empty the cells of runs that must not enter a mean over seeds; return the reasons.

    A run is left out if the group was evaluated at a later step, if its seed is a duplicate, or if
    its targets differ.
    """
    notes = []
    groups: dict[str, list[dict]] = {}
    for run in runs:
        if measured[run["id"]]:
            groups.setdefault(run["group"], []).append(run)
            if run["evaluated_at"] != run["steps"]:
                notes.append(
                    f"{run['name']}: evaluated at step {run['evaluated_at']} of {run['steps']}"
                )
    for members in groups.values():
        newest = max(run["evaluated_at"] for run in members)
        seeds: dict[int, str] = {}
        reasons: dict[str, str] = {}
        for run in members:
            if run["evaluated_at"] != newest:
                reasons[run["id"]] = f"the rest of its group was evaluated at step {newest}"
            elif run["seed"] in seeds:
                reasons[run["id"]] = f"the same experiment and seed as {seeds[run['seed']]}"
            else:
                seeds[run["seed"]] = run["name"]
        targets_of = {
            run["id"]: _all_targets(measured[run["id"]])
            for run in members
            if run["id"] not in reasons
        }
        usual = {
            place: most_common(
                by_place[place] for by_place in targets_of.values() if place in by_place
            )
            for place in {place for by_place in targets_of.values() for place in by_place}
        }
        for id_, by_place in targets_of.items():
            if any(usual[place] != scored for place, scored in by_place.items()):
                reasons[id_] = "its targets differ from the rest of its group"
        for run in members:
            run["left_out"] = run["id"] in reasons
            if run["left_out"]:
                notes.append(f"{run['name']} is not in the means: {reasons[run['id']]}")
                measured[run["id"]] = []
    return notes


def diverged(runs: Sequence[dict]) -> list[str]:
    """Notes on groups without a rank, because the training of a seed was not finite."""
    return [
        f"{run['name']}: its training was not finite, so {run['group']} is not ranked; its curves "
        "are means over the other seeds"
        for run in runs
        if run["diverged"]
    ]


def left_out(runs: Sequence[dict]) -> list[str]:
    """Notes on requested methods that do not fit the encoding, one per reason."""
    by_reason: dict[str, dict[str, dict[str, None]]] = {}  # reason -> method -> groups, in order
    for run in runs:
        for row in run["unfit"]:
            groups = by_reason.setdefault(row["flag"], {}).setdefault(row["method"], {})
            groups[run["group"]] = None
    return [
        f"{', '.join(methods)} {reason}; not evaluated for "
        + ", ".join(dict.fromkeys(group for groups in methods.values() for group in groups))
        for reason, methods in by_reason.items()
    ]


def in_means(run: dict) -> bool:
    """True if the run was evaluated and `comparable` did not leave it out."""
    return not run.get("left_out", True)


def members(data: Gathered, group: str) -> list[dict]:
    """The runs in the means of a group."""
    return [run for run in data.runs if run["group"] == group and in_means(run)]


def evaluated(folder: Path, evaluation: str = "") -> tuple[list[Measured], str, list[dict]]:
    """Cells of the newest checkpoint, a note on other evaluations, and the methods left out."""
    if not exists(folder / "eval"):
        return [], "not evaluated yet", []
    try:
        record = read_record(folder / "eval")
        all_cells = record.cells
        cells = records.of_evaluation(all_cells, evaluation)
    except Stop as error:
        return [], str(error), []
    last = max(cell.facts["step"] for cell in cells)
    shown = cells[0].facts["evaluation"]
    others = {cell.facts["evaluation"] for cell in all_cells} - {shown}
    note = ""
    if others and not evaluation:
        note = (
            f"shows its evaluation {shown!r}; choose another with --evaluation=NAME: "
            f"{', '.join(sorted(others))}"
        )
    left_out = [row for row in record.left_out if (row["evaluation"], row["step"]) == (shown, last)]
    return [cell for cell in cells if cell.facts["step"] == last], note, left_out


def points_of(run: dict, cells: Sequence[Measured]) -> list[dict]:
    """Rows of a run, one per cell, by length."""
    rows = [row for row in records.rows(cells) if not protocols.find(row["protocol"]).by_place]
    return [
        _names(run, row)
        | {name: row[name] for name in ("length", *VALUES) if name in row}
        | {"null_bpb": None if row["gain_bpb"] is None else row["bpb"] + row["gain_bpb"]}
        | {"counts": counts(row)}
        for row in sorted(rows, key=lambda row: row["length"])
    ]


def places_of(run: dict, cells: Sequence[Measured]) -> list[dict]:
    """Loss of a run at the places of its longest windows, averaged over neighbouring places."""
    rows = []
    for cell in cells:
        by_place = protocols.find(cell.facts["protocol"]).by_place
        if by_place and np.all(np.isfinite(cell.sums.by_place)):
            names = _names(run, cell.facts) | {"length": cell.facts["length"]}
            windows = int(cell.sums.windows[0])
            means = zip(*smooth(cell.sums.by_place / windows, windows), strict=True)
            rows += [names | {"place": place, "nll": nll} for place, nll in means]
    return rows


def _names(run: dict, facts: dict) -> dict[str, Any]:
    of_cell = {name: facts[name] for name in OF_CELL if name in facts}
    return {name: run[name] for name in OF_RUN} | of_cell | {"method": label(facts)}


def _all_targets(cells: Sequence[Measured]) -> dict[tuple, tuple]:
    names = ("protocol", "length", "part")
    return {tuple(cell.facts[name] for name in names): targets_of(cell.facts) for cell in cells}


def _or(call, otherwise, notes: list[str] | None = None):
    try:
        return call()
    except Stop as error:
        if notes is not None:
            notes.append(str(error))
        return otherwise
