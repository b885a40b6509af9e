"""Ranking of groups of runs and methods, with differences paired by document and by seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.cells import Cell, is_baseline, label, targets_of
from posenc_jax.evaluation.statistics import (
    Corrected,
    Units,
    holm,
    of_seeds,
    over_documents,
    over_seeds,
    p_of_both,
    paired,
)
from posenc_jax.report.runs import Run, most_common

LEVEL = 0.05  # familywise error rate of a table


class Rank(NamedTuple):
    """A group of runs with a method, compared with the best entry of its table.

    The difference is over common seeds. The verdict is `behind` if it is significant, `tie` if not.
    It is `open` if the comparison alone is significant, but there are fewer than ten documents,
    fewer than three common seeds, or too many comparisons. `p` is corrected for all pairs of
    entries (Holm), as the best is chosen on the same data; intervals are not.
    """

    group: str
    method: str
    seeds: list[float]  # bits per byte or share of wrong answers, as are all losses below
    loss: float
    interval: tuple[float, float] | None  # of the mean over seeds
    behind: float
    by_documents: tuple[float, float]  # interval of the difference; infinite for one unit
    by_seeds: tuple[float, float] | None  # interval of the difference
    units: Units  # of that interval
    shared: int  # common seeds
    alone: float  # uncorrected p over documents and seeds; 1 if not behind
    p: float  # corrected
    comparisons: int  # factor of the correction
    verdict: str


Tables = dict[str, dict[int, list[Rank]]]  # protocol -> length -> entries, best first


class Rankings(NamedTuple):
    """Tables with and without extensions, and notes on what the first leave out."""

    extended: Tables
    plain: Tables
    notes: Sequence[str]


def rankings(runs: Sequence[Run]) -> Rankings:
    extended, notes = ranked(runs)
    return Rankings(extended, ranked(runs, plain=True)[0], notes)


class DocumentLoss(NamedTuple):
    """Loss of a cell by document: the ratio of `amount` to `size`, times `unit`."""

    amount: np.ndarray  # [D]
    size: np.ndarray  # [D]
    unit: float | None  # None: the loss is undefined


def bits(cell: Cell) -> DocumentLoss:
    return DocumentLoss(cell.nats, cell.tokens, records.per_byte_of(cell))


def wrong_answers(cell: Cell) -> DocumentLoss:
    answered = cell.answers > 0
    size = cell.answers[answered]
    return DocumentLoss(size - cell.right[answered], size, 1.0 if len(size) else None)


def right(row: Rank) -> Rank:
    """The row in shares of right instead of wrong answers."""
    low, high = row.interval or (0.0, 0.0)
    interval = None if row.interval is None else (1 - high, 1 - low)
    seeds = [1 - value for value in row.seeds]
    return row._replace(loss=1 - row.loss, seeds=seeds, interval=interval)


def loss_of(protocol: str) -> Callable[[Cell], DocumentLoss]:
    """Loss by which a protocol ranks."""
    return wrong_answers if protocols.find(protocol).value == "accuracy" else bits


def ranked(runs: Sequence[Run], plain: bool = False) -> tuple[Tables, list[str]]:
    """Tables of all protocols and lengths, with notes on what they leave out; `plain` ranks no
    extensions.

    Baselines and, for answers, oracles are not ranked. Left out are groups with a diverged run,
    runs whose targets differ from most, runs without bits per byte, and means with a loss that is
    not finite.
    """
    tables: Tables = {}
    notes: dict[str, None] = {}  # in order, each once
    broken: dict[str, list[str]] = {}
    order = protocols.against_length()
    diverged = {run.group for run in runs if run.diverged}
    cells = [
        (run, cell)
        for run in runs
        if run.in_means and run.group not in diverged
        for cell in run.cells
        if not plain or label(cell.facts) == "none"
    ]
    measured = {(cell.facts["protocol"], cell.facts["length"]) for _, cell in cells}
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
        lost = loss_of(protocol)
        if lost is wrong_answers:
            longest = max(n for name, n in places if name == protocol)
            here = [pair for pair in here if pair[0].trained < longest] or here
        usual = most_common({run.id: targets_of(cell.facts) for run, cell in here}.values())
        entries: dict[tuple[str, str], list[Cell]] = {}
        for run, cell in here:
            if lost(cell).unit is None:
                notes[
                    f"{run.group}: its tokenizer loses text, so it has no bits per byte and is "
                    "not ranked"
                ] = None
            elif targets_of(cell.facts) != usual:
                notes[
                    f"{run.group}: its targets differ from most runs, so its curves are not "
                    "comparable and it is not ranked"
                ] = None
            else:
                entries.setdefault((run.group, label(cell.facts)), []).append(cell)
        for entry in list(entries):
            if not all(np.all(np.isfinite(cell.nats)) for cell in entries[entry]):
                broken.setdefault(" + ".join(entry), []).append(f"{protocol} at {length:,}")
                del entries[entry]
        if entries:
            tables.setdefault(protocol, {})[length] = _table(entries, lost)
    missing = [
        f"{entry}: the loss of a seed is not finite, so it is not ranked: {', '.join(places)}"
        for entry, places in broken.items()
    ]
    return tables, [*notes, *missing]


def _table(
    entries: Mapping[tuple[str, str], Sequence[Cell]], lost: Callable[[Cell], DocumentLoss]
) -> list[Rank]:
    seeds = {
        entry: {cell.facts["seed"]: lost(cell).amount for cell in cells}
        for entry, cells in entries.items()
    }
    seeds = _distinct(seeds)
    means = {entry: np.mean(list(by_seed.values()), axis=0) for entry, by_seed in seeds.items()}
    order = sorted(means, key=lambda entry: means[entry].sum())
    best = entries[order[0]][0]
    _, size, unit = lost(best)
    assert unit is not None  # others are left out
    tests = [(1.0, Corrected(1.0, 1)), *_against_best([seeds[entry] for entry in order], size)]
    rows = [
        _rank(entry, seeds[entry], seeds[order[0]], size, unit, best.facts["unit"], *test)
        for entry, test in zip(order, tests, strict=True)
    ]
    return [
        rows[0]._replace(verdict="best"),
        *(row._replace(verdict=verdict(row)) for row in rows[1:]),
    ]


def _against_best(
    entries: Sequence[Mapping[int, np.ndarray]],  # the best first
    size: np.ndarray,
) -> list[tuple[float, Corrected]]:
    """P-value of each entry but the best, alone and corrected for all pairs of entries."""
    seeds = sorted(set().union(*entries))
    has = np.array([[seed in entry for seed in seeds] for entry in entries])
    zeros = np.zeros(len(size))
    amount = np.array([[entry.get(seed, zeros) for seed in seeds] for entry in entries])
    pairs = [_p(amount[i:], has[i:], size) for i in range(len(entries) - 1)]
    alone = np.concatenate(pairs).tolist() if pairs else []
    return list(zip(alone, holm(alone), strict=True))[: len(entries) - 1]


def _p(amount: np.ndarray, has: np.ndarray, size: np.ndarray) -> np.ndarray:
    """P-value of each entry [N, S, D] but the first being behind it; 1 where it is not behind."""
    shared = has[1:] & has[0]
    common = shared.any(axis=1, keepdims=True)
    weights, best = (np.where(common, shared, side).astype(float) for side in (has[1:], has[:1]))
    weights, best = (side / side.sum(axis=1, keepdims=True) for side in (weights, best))
    differences = np.einsum("ns,nsd->nd", weights, amount[1:]) - best @ amount[0]
    by_seed = np.where(shared[..., None], amount[1:] - amount[0], 0).sum(axis=2) / size.sum()
    p = p_of_both(over_documents(differences, size), of_seeds(by_seed, shared))
    return np.where(differences.sum(axis=1) > 0, p, 1.0)


def _distinct(
    seeds: Mapping[tuple[str, str], Mapping[int, np.ndarray]],
) -> dict[tuple[str, str], Mapping[int, np.ndarray]]:
    """Entries without methods whose losses equal another's of the same group in every seed."""
    distinct: dict[tuple[str, str], Mapping[int, np.ndarray]] = {}
    for entry in sorted(seeds, key=lambda entry: (entry[1] != "none", -len(seeds[entry]))):
        losses = seeds[entry]
        others = (other for (group, _), other in distinct.items() if group == entry[0])
        if not any(_same(losses, other) for other in others):
            distinct[entry] = losses
    return distinct


def _same(losses: Mapping[int, np.ndarray], other: Mapping[int, np.ndarray]) -> bool:
    return all(seed in other and np.array_equal(losses[seed], other[seed]) for seed in losses)


def verdict(row: Rank) -> str:
    if row.p > LEVEL:  # includes entries ahead over common seeds
        return "open" if row.alone <= LEVEL else "tie"
    enough = row.units.enough and row.by_seeds is not None
    return "behind" if enough else "open"


def _rank(
    entry: tuple[str, str],
    by_seed: Mapping[int, np.ndarray],  # seed -> loss by document
    of_best: Mapping[int, np.ndarray],
    size: np.ndarray,
    unit: float,
    kind: str | None,  # of the units of intervals
    alone: float,
    corrected: Corrected,
) -> Rank:
    shared = [seed for seed in by_seed if seed in of_best]
    mean, best_mean = (
        np.mean([side[seed] for seed in shared or side], axis=0) for side in (by_seed, of_best)
    )
    difference = paired(mean, best_mean, size, kind)

    def loss(amount: np.ndarray) -> float:
        return float(amount.sum() / size.sum() * unit)

    differences = [loss(by_seed[seed] - of_best[seed]) for seed in shared]
    by_seeds = over_seeds(differences)
    losses = [loss(amount) for amount in by_seed.values()]
    interval = over_seeds(losses)
    return Rank(
        group=entry[0],
        method=entry[1],
        seeds=losses,
        loss=float(np.mean(losses)),
        interval=None if interval is None else interval[1:],
        behind=difference.mean * unit,
        by_documents=(difference.low * unit, difference.high * unit),
        by_seeds=None if by_seeds is None else by_seeds[1:],
        units=difference.units,
        shared=len(shared),
        alone=alone,
        p=corrected.p,
        comparisons=corrected.comparisons,
        verdict="",
    )
