"""The ranking of groups of runs and methods: differences paired by document and by seed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import (
    FEWEST_DOCUMENTS,
    FEWEST_SEEDS,
    Corrected,
    holm,
    of_seeds,
    over_documents,
    over_seeds,
    p_of_both,
    paired,
    seeds_needed,
)
from posenc_jax.evaluation.sums import Sums
from posenc_jax.evaluation.table import is_baseline, label

LEVEL = 0.05  # of all claims of a table together


class Rank(NamedTuple):
    """A group of runs with a method, over its seeds, against the best entry of its table.

    The difference is over the seeds that both have. Its verdict is `tie` where other documents and
    other seeds might reverse it, else `behind`; or `open`, where they would not but there are fewer
    than ten documents, fewer than three common seeds, or too many comparisons for so few: `p` is
    corrected for all pairs of entries (Holm), as the best one is picked on the same data; intervals
    are not.
    """

    group: str
    method: str
    seeds: list[float]  # bits per byte, or the share of wrong answers, as all that follow
    loss: float
    interval: tuple[float, float] | None  # of the mean over seeds
    behind: float
    by_documents: tuple[float, float]  # of the difference; infinite for a single document
    by_seeds: tuple[float, float] | None  # of the difference
    documents: int
    shared: int  # seeds that both have
    alone: float  # p by documents and seeds, of this comparison alone; 1 where it is not behind
    p: float  # the same, corrected
    comparisons: int  # that p was multiplied by
    needed: float | None  # seeds for a claim; infinite: not even a thousand on these documents
    verdict: str


Tables = dict[str, dict[int, list[Rank]]]  # protocol -> length -> entries, the best first


class Lost(NamedTuple):
    """What a cell lost by document: `amount` of `size`; their ratio times `unit` is the loss."""

    amount: np.ndarray  # [D]
    size: np.ndarray  # [D]
    unit: float | None  # None: there is no such loss


def bits(sums: Sums) -> Lost:
    return Lost(sums.nats, sums.tokens, records.per_byte_of(sums))


def wrong_answers(sums: Sums) -> Lost:
    asked = sums.answers > 0
    size = sums.answers[asked]
    return Lost(size - sums.right[asked], size, 1.0 if len(size) else None)


def loss_of(protocol: str) -> Callable[[Sums], Lost]:
    """What a protocol ranks by."""
    return wrong_answers if protocols.find(protocol).value == "accuracy" else bits


def ranked(cells: Sequence[tuple[dict, Measured]]) -> tuple[Tables, list[str]]:
    """The tables of all protocols and lengths, and notes on what is not in them.

    The window limit is a baseline and no entry, and so are oracles among those who answer. Skipped:
    runs scored on other targets than most runs, runs without bits per byte, and means that would
    include a loss that is not finite.
    """
    tables: Tables = {}
    notes: dict[str, None] = {}  # in order, each once
    broken: dict[str, list[str]] = {}
    order = protocols.against_length()
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
            here = _without_oracles(here, max(at for name, at in places if name == protocol))
        usual = most_common({run["id"]: targets(cell) for run, cell in here}.values())
        entries: dict[tuple[str, str], list[Measured]] = {}
        for run, cell in here:
            if lost(cell.sums).unit is None:
                notes[
                    f"{run['group']}: its tokenizer loses text; without bits per byte it has no "
                    "rank"
                ] = None
            elif targets(cell) != usual:
                notes[
                    f"{run['group']}: other targets than most runs; its curves cannot be compared "
                    "with theirs and are not in the ranking"
                ] = None
            else:
                entries.setdefault((run["group"], label(cell.facts)), []).append(cell)
        for entry in list(entries):
            if not all(np.all(np.isfinite(cell.sums.nats)) for cell in entries[entry]):
                broken.setdefault(" + ".join(entry), []).append(f"{protocol} at {length:,}")
                del entries[entry]
        if entries:
            tables.setdefault(protocol, {})[length] = _table(entries, lost)
    missing = [
        f"{entry}: a seed is not finite, so there is no mean: {', '.join(places)}"
        for entry, places in broken.items()
    ]
    return tables, [*notes, *missing]


def _without_oracles(
    cells: Sequence[tuple[dict, Measured]], longest: int
) -> list[tuple[dict, Measured]]:
    """Without runs that were trained at the longest length, unless all were."""
    return [pair for pair in cells if pair[0]["trained"] < longest] or list(cells)


def _table(
    entries: Mapping[tuple[str, str], Sequence[Measured]], lost: Callable[[Sums], Lost]
) -> list[Rank]:
    seeds = {
        entry: {cell.facts["seed"]: lost(cell.sums).amount for cell in cells}
        for entry, cells in entries.items()
    }
    seeds = _distinct(seeds)
    means = {entry: np.mean(list(own.values()), axis=0) for entry, own in seeds.items()}
    order = sorted(means, key=lambda entry: means[entry].sum())
    _, size, unit = lost(entries[order[0]][0].sums)
    assert unit is not None  # entries without are skipped
    tests = [(1.0, Corrected(1.0, 1)), *_against_best([seeds[entry] for entry in order], size)]
    found = [
        _rank(entry, seeds[entry], seeds[order[0]], size, unit, *one)
        for entry, one in zip(order, tests, strict=True)
    ]
    return [
        found[0]._replace(verdict="best"),
        *(row._replace(verdict=verdict(row)) for row in found[1:]),
    ]


def _against_best(
    entries: Sequence[Mapping[int, np.ndarray]],  # the best first
    size: np.ndarray,
) -> list[tuple[float, Corrected]]:
    """What stands against each but the best, alone and corrected for all pairs of entries."""
    seeds = sorted(set().union(*entries))
    has = np.array([[seed in own for seed in seeds] for own in entries])
    none = np.zeros(len(size))
    amount = np.array([[own.get(seed, none) for seed in seeds] for own in entries])
    pairs = [_p(amount[i:], has[i:], size) for i in range(len(entries) - 1)]
    alone = np.concatenate(pairs).tolist() if pairs else []
    return list(zip(alone, holm(alone), strict=True))[: len(entries) - 1]


def _p(amount: np.ndarray, has: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Of each entry [N, S, D] but the first against it the p by documents and seeds; 1 where it is
    not behind."""
    shared = has[1:] & has[0]
    common = shared.any(axis=1, keepdims=True)
    mine, its = (np.where(common, shared, own).astype(float) for own in (has[1:], has[:1]))
    mine, its = (side / side.sum(axis=1, keepdims=True) for side in (mine, its))
    differences = np.einsum("ns,nsd->nd", mine, amount[1:]) - its @ amount[0]
    by_seed = np.where(shared[..., None], amount[1:] - amount[0], 0).sum(axis=2) / size.sum()
    p = p_of_both(over_documents(differences, size), of_seeds(by_seed, shared))
    return np.where(differences.sum(axis=1) > 0, p, 1.0)


def _distinct(
    seeds: Mapping[tuple[str, str], Mapping[int, np.ndarray]],
) -> dict[tuple[str, str], Mapping[int, np.ndarray]]:
    """Without methods that change nothing, or what another one changed, in any seed of a group."""
    found: dict[tuple[str, str], Mapping[int, np.ndarray]] = {}
    for entry in sorted(seeds, key=lambda entry: (entry[1] != "none", -len(seeds[entry]))):
        own = seeds[entry]
        others = (other for (group, _), other in found.items() if group == entry[0])
        if not any(_same(own, other) for other in others):
            found[entry] = own
    return found


def _same(own: Mapping[int, np.ndarray], other: Mapping[int, np.ndarray]) -> bool:
    return all(seed in other and np.array_equal(own[seed], other[seed]) for seed in own)


def verdict(row: Rank) -> str:
    if row.p > LEVEL:  # or ahead over the seeds that both have
        return "open" if row.alone <= LEVEL else "tie"
    enough = row.documents >= FEWEST_DOCUMENTS and row.by_seeds is not None
    return "behind" if enough else "open"


def _rank(
    entry: tuple[str, str],
    own: Mapping[int, np.ndarray],  # seed -> what is lost by document
    of_best: Mapping[int, np.ndarray],
    size: np.ndarray,
    unit: float,
    alone: float,
    corrected: Corrected,
) -> Rank:
    shared = [seed for seed in own if seed in of_best]
    mine, its = (
        np.mean([side[seed] for seed in shared or side], axis=0) for side in (own, of_best)
    )
    one = paired(mine, its, size)

    def loss(amount: np.ndarray) -> float:
        return float(amount.sum() / size.sum() * unit)

    differences = [loss(own[seed] - of_best[seed]) for seed in shared]
    across = over_seeds(differences)
    each = [loss(amount) for amount in own.values()]
    over = over_seeds(each)
    return Rank(
        group=entry[0],
        method=entry[1],
        seeds=each,
        loss=float(np.mean(each)),
        interval=None if over is None else over[1:],
        behind=one.mean * unit,
        by_documents=(one.low * unit, one.high * unit),
        by_seeds=None if across is None else across[1:],
        documents=one.documents,
        shared=len(shared),
        alone=alone,
        p=corrected.p,
        comparisons=corrected.comparisons,
        needed=_needed(own, of_best, shared, size, LEVEL / corrected.comparisons),
        verdict="",
    )


def _needed(
    own: Mapping[int, np.ndarray],
    of_best: Mapping[int, np.ndarray],
    shared: Sequence[int],
    size: np.ndarray,
    level: float,
) -> float | None:
    """The seeds that a claim takes; None where they are not known, or it is not behind."""
    if len(shared) < FEWEST_SEEDS:
        return None
    by_document = np.array([own[seed] - of_best[seed] for seed in shared])  # [S, D]
    mean = by_document.mean(axis=0)
    seeds = of_seeds(by_document.sum(axis=1)[None] / size.sum(), np.ones((1, len(shared)), bool))
    if mean.sum() <= 0:
        return None
    noise = over_documents(by_document - mean, size).error ** 2
    noise = float(noise.mean()) / (len(shared) - 1)
    return seeds_needed(over_documents(mean[None], size), seeds, noise, level)


def targets(cell: Measured) -> tuple:
    """What a cell was scored on; equal values may be compared."""
    return tuple(cell.facts[name] for name in ("token_hash", "stride", "last"))


def most_common(values: Iterable[Any]) -> Any:
    """The most frequent value; the first of them where several are as frequent."""
    found = list(values)
    return max(dict.fromkeys(found), key=found.count) if found else None
