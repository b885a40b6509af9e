"""What a report shows, from the folders of runs: curves, ranking, places, cost, configurations.

Works from what is there: a run that is still in training has its facts, and curves come with its
evaluation.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.errors import DataError, OtherConfig, Stop
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.picture import smooth
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import over_seeds, paired
from posenc_jax.evaluation.table import counts, is_baseline, label
from posenc_jax.experiment import experiment, without_seed
from posenc_jax.runs.facts import data_in_words, speed
from posenc_jax.runs.metrics import null_for_nan, read_metrics
from posenc_jax.runs.workdir import Workdir


def gather(folders: Iterable[Path], evaluation: str = "") -> dict[str, Any]:
    """Of each run one evaluation: the named one, else that of its own held-out text."""
    runs, notes, found, edited = [], [], {}, []
    for folder in runs_in(folders):
        try:
            facts = run_facts(folder)
        except (Stop, AttributeError, KeyError, TypeError, ValueError) as error:
            notes.append(f"{folder.name} is left out: {error}")
            edited += [error] if isinstance(error, OtherConfig) else []
            continue
        own, note = evaluated(folder, evaluation)
        facts |= {"evaluated": bool(own), "evaluated_at": own[0].facts["step"] if own else None}
        runs.append(facts)
        found[facts["id"]] = own
        if note:
            notes.append(f"{facts['name']}: {note}")
    if edited and not runs:
        raise edited[0]
    if not runs:
        raise DataError(
            f"no run in {', '.join(map(str, folders))}: a run's folder has a config.json; a job "
            "of a sweep that has none says why in its sweep.log" + "".join(f"; {n}" for n in notes)
        )
    name_groups(runs)
    notes += comparable(runs, found)
    cells = [(run, cell) for run in runs for cell in found[run["id"]]]
    ranking, refused = ranked(cells)
    plain = [(run, cell) for run, cell in cells if label(cell.facts) == "none"]
    return {
        "runs": runs,
        "curves": [curve for run in runs for curve in curves_of(run["id"], found[run["id"]])],
        "places": [place for run in runs for place in places_of(run["id"], found[run["id"]])],
        "ranking": ranking,
        "plain_ranking": ranked(plain)[0],
        "notes": notes + refused,
    }


def runs_in(folders: Iterable[Path]) -> list[Path]:
    """The folders that are runs, and the runs in those that are sweeps."""
    found: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"{folder} is no folder of a run or a sweep")
        own = [folder] if (folder / "config.json").exists() else []
        for run in own or sorted(path.parent for path in folder.glob("*/config.json")):
            found[run.resolve()] = None
    return list(found)


def run_facts(folder: Path) -> dict[str, Any]:
    run = Workdir(folder)
    config = run.checked_config()
    assert config is not None
    status = _or(run.read_status, {})
    lines = _or(lambda: read_metrics(folder / "metrics.jsonl"), [])
    held_out = [line["valid_bpb"] for line in lines if line.get("valid_bpb") is not None]
    memory = [line["memory_mib"] for line in lines if line.get("memory_mib")]
    return {
        "id": str(folder),
        "name": folder.name,
        "encoding": config.encoding.name,
        "seed": config.seed,
        "trained": config.train_length,
        "steps": config.steps,
        "step": status.get("step") or (lines[-1]["step"] if lines else 0),
        "state": status.get("state", "unknown"),
        "speed": status.get("speed") or speed(lines),  # of a run that goes on, so far
        "memory": max(memory, default=None),
        "held_out": held_out[-1] if held_out else None,
        "digest": status.get("digest", ""),
        "command": status.get("command", ""),
        "data": data_in_words(status.get("data", {})),
        "config": str(config),
        "experiment": experiment(config),
    }


def name_groups(runs: Sequence[dict]) -> None:
    """Runs of one experiment but for the seed are one group, called by their encoding where it has
    no other group, else by their names without the seed, and by what differs where those clash."""
    kinds: dict[str, list[dict]] = {}
    for run in runs:
        kinds.setdefault(json.dumps(run["experiment"], sort_keys=True, default=str), []).append(run)
    names = {}
    for key, members in kinds.items():
        encoding = members[0]["encoding"]
        alone = sum(other[0]["encoding"] == encoding for other in kinds.values()) == 1
        names[key] = encoding if alone else without_seed(min(run["name"] for run in members))
    for key, members in kinds.items():
        clash = [other for other in kinds if names[other] == names[key]]
        told = _told_apart([kinds[other][0]["experiment"] for other in clash])
        for run in members:
            run["group"] = names[key] + told[clash.index(key)]


def _told_apart(experiments: Sequence[dict]) -> list[str]:
    """Of each as many of the fields in which they differ as it takes."""
    if len(experiments) == 1:
        return [""]
    every = sorted({field for one in experiments for field in one})
    differing = [f for f in every if any(e.get(f) != experiments[0].get(f) for e in experiments)]
    told: list[str] = []
    for count in range(1, len(differing) + 1):
        told = [
            ", ".join(f"{f.rpartition('.')[2]}={one.get(f)}" for f in differing[:count])
            for one in experiments
        ]
        if len(set(told)) == len(told):
            break
    return [f" ({words})" for words in told]


def comparable(runs: Sequence[dict], found: dict[str, list[Measured]]) -> list[str]:
    """Takes from `found` what a mean over seeds must not hold, and says what and why: another step
    than the last one of the group, a seed that is there already, other targets."""
    notes = []
    groups: dict[str, list[dict]] = {}
    for run in runs:
        if found[run["id"]]:
            groups.setdefault(run["group"], []).append(run)
            if run["evaluated_at"] != run["steps"]:
                notes.append(
                    f"{run['name']}: evaluated at step {run['evaluated_at']} of {run['steps']}"
                )
    for members in groups.values():
        newest = max(run["evaluated_at"] for run in members)
        seeds: dict[int, str] = {}
        left: dict[str, str] = {}
        for run in members:
            if run["evaluated_at"] != newest:
                left[run["id"]] = f"others of its kind were evaluated at step {newest}"
            elif run["seed"] in seeds:
                left[run["id"]] = f"the same experiment and seed as {seeds[run['seed']]}"
            else:
                seeds[run["seed"]] = run["name"]
        targets = {
            run["id"]: _all_targets(found[run["id"]]) for run in members if run["id"] not in left
        }
        usual = {
            place: _usual(own[place] for own in targets.values() if place in own)
            for place in {place for own in targets.values() for place in own}
        }
        for name, own in targets.items():
            if any(usual[place] != scored for place, scored in own.items()):
                left[name] = "other targets than others of its kind"
        for run in members:
            run["left_out"] = run["id"] in left
            if run["left_out"]:
                notes.append(f"{run['name']} is left out of means: {left[run['id']]}")
                found[run["id"]] = []
    return notes


def evaluated(folder: Path, evaluation: str = "") -> tuple[list[Measured], str]:
    """The cells of its newest checkpoint; why there are none, or which others there are."""
    if not (folder / "eval" / "documents.npz").exists():
        return [], "not evaluated yet"
    try:
        every = records.read(folder / "eval")
        cells = records.of_evaluation(every, evaluation)
    except Stop as error:
        return [], str(error)
    last = max(cell.facts["step"] for cell in cells)
    shown = cells[0].facts["evaluation"]
    others = {cell.facts["evaluation"] for cell in every} - {shown}
    note = ""
    if others and not evaluation:
        note = (
            f"its evaluation {shown!r} is shown; --evaluation=NAME shows another: "
            f"{', '.join(sorted(others))}"
        )
    return [cell for cell in cells if cell.facts["step"] == last], note


def curves_of(run: str, cells: Sequence[Measured]) -> list[dict]:
    lines: dict[tuple, dict] = {}
    for row in records.rows(cells):
        if protocols.find(row["protocol"]).by_place:
            continue
        name = row["protocol"], label(row)
        line = lines.setdefault(
            name,
            {
                "run": run,
                "protocol": row["protocol"],
                "method": label(row),
                "extension": row["extension"],
                "scale": row["scale"],
                "window": row["window"],
                "points": [],
            },
        )
        null = None if row["gain_bpb"] is None else row["bpb"] + row["gain_bpb"]
        point = {field: row[field] for field in ("length", "bpb", "ppl", "nll", "nll_se")}
        point |= {"null": null, "said": counts(row)}
        point |= {name: row[name] for name in ("tokens", "documents", "windows")}
        line["points"].append(null_for_nan(point))
    for line in lines.values():
        line["points"].sort(key=lambda point: point["length"])
    return list(lines.values())


def places_of(run: str, cells: Sequence[Measured]) -> list[dict]:
    found = []
    for cell in cells:
        by_place = protocols.find(cell.facts["protocol"]).by_place
        if not by_place or not np.all(np.isfinite(cell.sums.by_place)):
            continue
        x, y = smooth(cell.sums.by_place / cell.sums.windows)
        points = [[round(float(a), 1), round(float(b), 5)] for a, b in zip(x, y, strict=True)]
        facts = {"run": run, "protocol": cell.facts["protocol"], "method": label(cell.facts)}
        found.append(facts | {"points": points})
    return found


def ranked(cells: Sequence[tuple[dict, Measured]]) -> tuple[dict, list[str]]:
    """protocol -> length -> entries, best first, each against the best over the same documents.

    An entry is a group of runs with a method, over its seeds: the mean of their losses, document
    by document. The window limit is a baseline and no entry. What was scored on other targets than
    most runs is left out and said, as is a mean that would hold a loss that is not finite.
    """
    tables: dict[str, dict[int, list[dict]]] = {}
    others: dict[str, None] = {}
    broken: dict[str, list[str]] = {}
    measured = {(c.facts["protocol"], c.facts["length"]) for _, c in cells}
    order = protocols.against_length()
    places = sorted(
        (place for place in measured if place[0] in order),
        key=lambda place: (order.index(place[0]), place[1]),
    )
    for protocol, length in places:
        here = [
            (run, cell)
            for run, cell in cells
            if (cell.facts["protocol"], cell.facts["length"]) == (protocol, length)
            and not is_baseline(cell.facts)
        ]
        usual = _usual({run["id"]: _targets(cell) for run, cell in here}.values())
        entries: dict[tuple[str, str], list[Measured]] = {}
        for run, cell in here:
            if not cell.sums.bytes.sum():
                others[
                    f"{run['group']}: its tokenizer loses text; without bits per byte it has no "
                    "rank"
                ] = None
            elif _targets(cell) == usual:
                entries.setdefault((run["group"], label(cell.facts)), []).append(cell)
            else:
                others[
                    f"{run['group']}: other targets than most runs; its curves stand apart from "
                    "theirs and are not in the ranking"
                ] = None
        for who in list(entries):
            if not all(np.all(np.isfinite(cell.sums.nats)) for cell in entries[who]):
                broken.setdefault(" + ".join(who), []).append(f"{protocol} at {length:,}")
                del entries[who]
        if entries:
            tables.setdefault(protocol, {})[length] = _table(entries)
    lost = [
        f"{who}: a seed is not finite, and there is no mean: {', '.join(places)}"
        for who, places in broken.items()
    ]
    return tables, [*others, *lost]


def _table(entries: dict[tuple[str, str], list[Measured]]) -> list[dict]:
    """A difference is over the seeds that both sides have. Its verdict: `tie`, where other
    documents or other seeds might have had it the other way round; `behind`; `open`, where its
    interval over documents leaves zero out and yet there are too few documents to rely on it, or
    fewer than three common seeds, which say nothing of training's chance."""
    seeds = {
        who: {cell.facts["seed"]: cell.sums.nats for cell in group}
        for who, group in entries.items()
    }
    means = {who: np.mean(list(own.values()), axis=0) for who, own in seeds.items()}
    best = min(means, key=lambda who: means[who].sum())
    sums = entries[best][0].sums
    tokens, per_byte = sums.tokens, records.per_byte_of(sums)
    assert per_byte is not None  # those without are not ranked
    rows = []
    for who, nats in sorted(means.items(), key=lambda item: item[1].sum()):
        own = seeds[who]
        shared = [seed for seed in own if seed in seeds[best]]
        mine, its = (
            np.mean([side[seed] for seed in shared or side], axis=0) for side in (own, seeds[best])
        )
        one = paired(mine, its, tokens)
        across = over_seeds(
            [(own[s] - seeds[best][s]).sum() / tokens.sum() * per_byte for s in shared]
        )
        verdict = "behind" if one.clear and across is not None else "open"
        if one.low <= 0 or (across is not None and across[1] <= 0):
            verdict = "tie"  # or ahead over the seeds that both have
        each = [float(value.sum() / tokens.sum() * per_byte) for value in own.values()]
        over = over_seeds(each)
        rows.append(
            {
                "group": who[0],
                "method": who[1],
                "seeds": each,
                "bpb": float(nats.sum() / tokens.sum() * per_byte),
                "interval": None if over is None else [over[1], over[2]],
                "behind": [
                    float(value * per_byte) if np.isfinite(value) else None
                    for value in (one.mean, one.low, one.high)
                ],
                "documents": one.documents,
                "across": None if across is None else [across[1], across[2]],  # of seeds
                "shared": len(shared),
                "verdict": "best" if who == best else verdict,
            }
        )
    return rows


def _targets(cell: Measured) -> tuple:
    return tuple(cell.facts[name] for name in ("token_hash", "stride", "last"))


def _all_targets(cells: Sequence[Measured]) -> dict[tuple, tuple]:
    return {(cell.facts["protocol"], cell.facts["length"]): _targets(cell) for cell in cells}


def _usual(values: Iterable[Any]) -> Any:
    """What most have; the first of them where two are as many."""
    found = list(values)
    return max(dict.fromkeys(found), key=found.count) if found else None


def _or(call, otherwise):
    try:
        return call()
    except Stop:
        return otherwise
