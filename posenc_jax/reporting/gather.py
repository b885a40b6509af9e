"""What a report shows, from the folders of runs: curves, ranking, places, cost, configurations.

Works from what is there: a run that is still in training has its facts, and curves come with its
evaluation.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.evaluation import records
from posenc_jax.evaluation.picture import smooth
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.show import label
from posenc_jax.evaluation.statistics import over_seeds, paired
from posenc_jax.exits import DataError, Stop
from posenc_jax.training.run import ESSENTIAL, Workdir, null_for_nan, read_metrics

RANKED = ("same_token", "nonoverlap", "sliding")


def gather(folders: Iterable[Path]) -> dict[str, Any]:
    runs, curves, places, cells, notes = [], [], [], [], []
    for folder in runs_in(folders):
        facts = run_facts(folder)
        own, note = evaluated(folder)
        facts["evaluated"] = bool(own)
        runs.append(facts)
        if note:
            notes.append(f"{facts['name']}: {note}")
        if own:
            curves += curves_of(facts["id"], own)
            places += places_of(facts["id"], own)
            cells += [(facts, cell) for cell in own]
    name_groups(runs)
    if not runs:
        raise DataError(f"no run in {', '.join(map(str, folders))}: a run's folder has config.json")
    ranking, refused = ranked(cells)
    plain = [(facts, cell) for facts, cell in cells if label(cell.facts) == "none"]
    return {
        "runs": runs,
        "curves": curves,
        "places": places,
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
    config = run.config()
    assert config is not None
    status = _or(run.read_status, {})
    lines = _or(lambda: read_metrics(folder / "metrics.jsonl"), [])
    speeds = [line["tokens_per_second"] for line in lines if line.get("tokens_per_second")]
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
        "speed": float(np.median(speeds[1:] or speeds)) if speeds else None,
        "memory": max(memory, default=None),
        "held_out": held_out[-1] if held_out else None,
        "digest": status.get("digest", ""),
        "command": _said(folder, "a fresh run"),
        "data": _said(folder, "data "),
        "config": str(config),
        "alike": json.dumps(_without_seed(config), sort_keys=True, default=str),
    }


def name_groups(runs: Sequence[dict]) -> None:
    """Runs that differ in their seed alone are one group, called by their encoding where it has no
    other group, else by their names without the seed."""
    for run in runs:
        same = [other for other in runs if other["encoding"] == run["encoding"]]
        alike = [other["name"] for other in same if other["alike"] == run["alike"]]
        name = run["encoding"]
        if len(alike) < len(same):
            name = re.sub(r"-s\d+$", "", min(alike))
        run["group"] = name
    taken = [(run["group"], run["alike"]) for run in runs]
    for run in runs:
        if len({alike for name, alike in taken if name == run["group"]}) > 1:
            run["group"] = (
                f"{run['group']} ({hashlib.sha256(run['alike'].encode()).hexdigest()[:4]})"
            )


def _without_seed(config) -> dict:
    fields = {name: config[name] for name in ESSENTIAL if name != "seed"}
    fields |= {"init": bool(config.get("init_from")), "original": config.get("original_length")}
    return {
        name: value.to_dict() if hasattr(value, "to_dict") else value
        for name, value in fields.items()
    }


def evaluated(folder: Path) -> tuple[list[Measured], str]:
    """The cells of its newest checkpoint; why there are none."""
    if not (folder / "eval" / "documents.npz").exists():
        return [], "not evaluated yet"
    try:
        cells = records.read(folder / "eval")
    except Stop as error:
        return [], str(error)
    last = max(cell.facts["step"] for cell in cells)
    return [cell for cell in cells if cell.facts["step"] == last], ""


def curves_of(run: str, cells: Sequence[Measured]) -> list[dict]:
    lines: dict[tuple, dict] = {}
    for row in records.rows(cells):
        if row["protocol"] == "position":
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
        point |= {"null": null, "tokens": row["tokens"], "documents": row["documents"]}
        line["points"].append(null_for_nan(point))
    for line in lines.values():
        line["points"].sort(key=lambda point: point["length"])
    return list(lines.values())


def places_of(run: str, cells: Sequence[Measured]) -> list[dict]:
    found = []
    for cell in cells:
        if cell.facts["protocol"] != "position" or not np.all(np.isfinite(cell.sums.by_place)):
            continue
        x, y = smooth(cell.sums.by_place / cell.sums.windows)
        points = [[round(float(a), 1), round(float(b), 5)] for a, b in zip(x, y, strict=True)]
        found.append({"run": run, "method": label(cell.facts), "points": points})
    return found


def ranked(cells: Sequence[tuple[dict, Measured]]) -> tuple[dict, list[str]]:
    """protocol -> length -> entries, best first, each against the best over the same documents.

    An entry is a group of runs with a method, over its seeds: the mean of their losses, document
    by document. It is a tie with the best where other documents, or other seeds, might have had
    them the other way round. What was scored on other targets than most is left out, and said.
    """
    tables: dict[str, dict[int, list[dict]]] = {}
    notes: dict[str, None] = {}
    for protocol in RANKED:
        lengths = sorted({c.facts["length"] for _, c in cells if c.facts["protocol"] == protocol})
        for length in lengths:
            chosen = [
                (facts, cell)
                for facts, cell in cells
                if (cell.facts["protocol"], cell.facts["length"]) == (protocol, length)
                and np.all(np.isfinite(cell.sums.nats))
            ]
            hashes = [_targets(cell) for _, cell in chosen]
            if not hashes:
                continue
            usual = max(dict.fromkeys(hashes), key=hashes.count)
            entries: dict[tuple[str, str], list[Measured]] = {}
            for (facts, cell), targets in zip(chosen, hashes, strict=True):
                if targets != usual:
                    notes[f"{facts['name']}: other targets than most runs; not in the ranking"] = (
                        None
                    )
                    continue
                who = facts["group"], label(cell.facts)
                entries.setdefault(who, []).append(cell)
            tables.setdefault(protocol, {})[length] = _table(entries)
    return tables, list(notes)


def _table(entries: dict[tuple[str, str], list[Measured]]) -> list[dict]:
    means = {who: np.mean([c.sums.nats for c in group], axis=0) for who, group in entries.items()}
    best = min(means, key=lambda who: means[who].sum())
    sums, best_by_seed = entries[best][0].sums, _by_seed(entries[best])
    tokens, per_byte = sums.tokens, sums.tokens.sum() / sums.bytes.sum() / np.log(2)
    rows = []
    for who, nats in sorted(means.items(), key=lambda item: item[1].sum()):
        one = paired(nats, means[best], tokens)
        each = [float(cell.sums.nats.sum() / tokens.sum() * per_byte) for cell in entries[who]]
        over = over_seeds(each)
        by_seed = _by_seed(entries[who])
        shared = [seed for seed in by_seed if seed in best_by_seed]
        across = over_seeds([(by_seed[s] - best_by_seed[s]) * per_byte for s in shared])
        clear = one.clear and (across is None or across[1] > 0)
        rows.append(
            {
                "group": who[0],
                "method": who[1],
                "seeds": each,
                "bpb": float(nats.sum() / tokens.sum() * per_byte),
                "interval": None if over is None else [over[1], over[2]],
                "behind": [float(value * per_byte) for value in (one.mean, one.low, one.high)],
                "across": None if across is None else [across[1], across[2]],  # of seeds
                "tie": who != best and not clear,
            }
        )
    return rows


def _by_seed(group: Sequence[Measured]) -> dict[int, float]:
    return {cell.facts["seed"]: cell.sums.nats.sum() / cell.sums.tokens.sum() for cell in group}


def _targets(cell: Measured) -> tuple:
    return tuple(cell.facts[name] for name in ("token_hash", "stride", "last"))


def _said(folder: Path, begin: str) -> str:
    """The newest line of log.txt that begins so, without the beginning."""
    try:
        lines = (folder / "log.txt").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found = [line.removeprefix(begin).lstrip(";, ") for line in lines if line.startswith(begin)]
    return found[-1] if found else ""


def _or(call, otherwise):
    try:
        return call()
    except Stop:
        return otherwise
