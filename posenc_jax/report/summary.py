"""Summary of a report in two sentences: its main numbers, then its data."""

from collections.abc import Iterable, Sequence
from math import isfinite

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import FEWEST_SEEDS
from posenc_jax.report import answers
from posenc_jax.report.gather import Gathered
from posenc_jax.report.ranking import Rank
from posenc_jax.terminal import counted

MOST = 4  # names in a list, before "and 3 more"
NAMED = 3  # entries behind the best one: the nearest and the last


def sentences(data: Gathered) -> list[str]:
    """Results, then the data they are from; empty where nothing has been evaluated."""
    results = [sentence for sentence in (_answered(data), _ranked(data)) if sentence]
    if not results:
        return []
    return [" ".join(results), on_what(data, protocols.HEADLINE, "answers")]


def _answered(data: Gathered) -> str:
    results = answers.of(data)
    if results is None:
        return ""
    known, best = answers.oracles(data, results), answers.at_longest(results)
    entries = [p for p in best if p[0] not in known and p[1] != "window"]
    plain = [p for p in entries if p[1] == "none"]
    if not entries or not plain:
        return ""
    words = [f"{answers.entry(results, *entries[0])} {best[entries[0]]:.2f}"]
    if plain[-1] != entries[0]:
        ranks = data.ranking.get("answers", {}).get(results.longest, [])
        behind = [f", {_behind(rank)}" for rank in ranks[1:] if rank[:2] == plain[-1]]
        words.append(f"{answers.entry(results, *plain[-1])} {best[plain[-1]]:.2f}{''.join(behind)}")
    floors = [best[p] for p in best if p[1] == "window" and p[0] not in known]
    if floors:
        words.append(f"a window of the last {results.trained:,} tokens at most {max(floors):.2f}")
    return f"Retrieval accuracy up to {results.longest:,} tokens back: {_list(words)}."


def _ranked(data: Gathered) -> str:
    """Sentence on the ranking of text at the longest length."""
    tables = data.ranking.get(protocols.HEADLINE, {})
    if not tables:
        return ""
    length = max(tables)
    best, *others = tables[length]
    named = others if len(others) <= NAMED else [*others[: NAMED - 1], others[-1]]
    words = [
        f"At {length:,} tokens {_name(best)} has the lowest loss, {best.loss:.3f} bits per byte",
        *(
            f"{_name(rank)} {'ties with it,' if rank.verdict == 'tie' else 'is'} {_behind(rank)}"
            for rank in named
        ),
    ]
    few = {rank.shared for rank in named if rank.by_seeds is None}
    if few:
        seeds = "one seed does" if few == {1} else f"fewer than {FEWEST_SEEDS} common seeds do"
        words.append(f"{seeds} not rank training")
    return "; ".join(words) + "."


def _behind(rank: Rank) -> str:
    """Difference of an entry to the best, with the interval that decides its verdict."""
    (low, high), over = rank.by_documents, "documents"
    if rank.by_seeds is not None and (rank.verdict != "tie" or rank.by_seeds[0] < low):
        (low, high), over = rank.by_seeds, "seeds"  # for a tie, the interval that contains zero
    if not isfinite(low):
        return f"{rank.behind:.3f} behind on a single document"
    open_ = rank.verdict == "open" and rank.by_seeds is not None
    among = f", open among {counted(rank.comparisons, 'comparison')}" if open_ else ""
    return f"{rank.behind:.3f} behind (95%: {low:.3f} to {high:.3f} over {over}{among})"


def _name(rank: Rank) -> str:
    return rank.group if rank.method == "none" else f"{rank.group} + {rank.method}"


def on_what(data: Gathered, *scored: str) -> str:
    """L, size, data, targets of the protocols `scored`, and seeds of all evaluated runs."""
    runs = [run for run in data.runs if run["evaluated"]]
    shown = data.points[data.points.protocol.isin(scored)]
    longest = shown.sort_values("length").groupby(["id", "protocol"], sort=False).counts.last()
    texts = dict.fromkeys((run["data"] or "unknown").partition(": ")[2] for run in runs)
    facts = [
        "L = " + " and ".join(f"{length:,}" for length in sorted({run["trained"] for run in runs})),
        _list(dict.fromkeys(run["size"] for run in runs)),
        _each(sorted({run["steps"] for run in runs}), "step"),
        _each(sorted(_seeds(runs)), "seed") + " a group",
        "trained on " + _list(texts),
        "scored: " + _list(longest.unique()),
    ]
    return f"{counted(len(runs), 'run')}; {'; '.join(facts)}."


def _seeds(runs: Sequence[dict]) -> set[int]:
    groups: dict[str, set[int]] = {}
    for run in runs:
        groups.setdefault(run["group"], set()).add(run["seed"])
    return {len(seeds) for seeds in groups.values()}


def _each(values: Sequence[int], noun: str) -> str:
    *first, last = values
    return "".join(f"{value:,} and " for value in first) + counted(last, noun)


def _list(words: Iterable[str]) -> str:
    """Words joined as "one, two and three"; of many the first few."""
    names = list(words)
    if len(names) > MOST + 1:
        names = [*names[:MOST], f"{len(names) - MOST} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
