"""What a report found and on what, in two sentences made of its numbers."""

from collections.abc import Iterable, Sequence

from posenc_jax.evaluation import protocols
from posenc_jax.report import answers
from posenc_jax.report.gather import Gathered
from posenc_jax.report.ranking import Rank

MOST = 4  # names in a list, before "and 3 more"


def sentences(data: Gathered) -> list[str]:
    """Two sentences, or fewer where nothing has been evaluated."""
    found = [one for one in (_answered(data), _ranked(data)) if one]
    return [" ".join(found), _on_what(data)] if found else []


def _answered(data: Gathered) -> str:
    found = answers.of(data)
    if found is None:
        return ""
    known, best = answers.oracles(data, found), answers.at_longest(found)
    entries = [p for p in best if p[0] not in known and p[1] != "window"]
    plain = [p for p in entries if p[1] == "none"]
    if not entries or not plain:
        return ""
    words = [f"{answers.entry(found, *entries[0])} is right in {best[entries[0]]:.2f}"]
    if plain[-1] != entries[0]:
        words.append(f"{answers.entry(found, *plain[-1])} in {best[plain[-1]]:.2f}")
    floors = [best[p] for p in best if p[1] == "window" and p[0] not in known]
    if floors:
        words.append(f"a window of the last {found.trained:,} tokens in {max(floors):.2f} at most")
    return f"Asked for what stands up to {found.longest:,} tokens back, {_list(words)}."


def _ranked(data: Gathered) -> str:
    """Of the runs that read text, at the longest length."""
    tables = data.ranking.get(protocols.HEADLINE, {})
    if not tables:
        return ""
    length = max(tables)
    best, *others = tables[length]
    ties = [_name(rank) for rank in others if rank.verdict in ("tie", "open")]
    words = f"At {length:,} tokens {_name(best)} has the lowest loss, {best.loss:.3f} bits per byte"
    if ties:
        not_told = "is not told apart from it" if len(ties) == 1 else "are not told apart from it"
        words += f"; {_list(ties)} {not_told}"
    behind = [rank for rank in others if rank.verdict == "behind"]
    if behind:
        words += f"; {_name(behind[-1])} is {behind[-1].behind:.3f} behind"
    return words + "."


def _name(rank: Rank) -> str:
    return rank.group if rank.method == "none" else f"{rank.group} + {rank.method}"


def _on_what(data: Gathered) -> str:
    """L, size, data, targets and seeds, of all runs that were evaluated."""
    runs = [run for run in data.runs if run["evaluated"]]
    shown = data.points[data.points.protocol.isin([protocols.HEADLINE, "answers"])]
    longest = shown.sort_values("length").groupby(["id", "protocol"], sort=False).counts.last()
    texts = dict.fromkeys((run["data"] or "unknown").partition(": ")[2] for run in runs)
    seeds = _each("{}", sorted(_seeds(runs)))
    facts = [
        _each("L = {}", sorted({run["trained"] for run in runs})),
        _list(dict.fromkeys(run["size"] for run in runs)),
        _each("{} steps", sorted({run["steps"] for run in runs})),
        "one seed" if seeds == "1" else f"{seeds} seeds a group",
        "trained on " + _list(texts),
        "scored: " + _list(longest.unique()),
    ]
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}; {'; '.join(facts)}."


def _seeds(runs: Sequence[dict]) -> set[int]:
    groups: dict[str, set[int]] = {}
    for run in runs:
        groups.setdefault(run["group"], set()).add(run["seed"])
    return {len(seeds) for seeds in groups.values()}


def _each(words: str, values: Sequence[int]) -> str:
    return words.format(" and ".join(f"{value:,}" for value in values))


def _list(words: Iterable[str]) -> str:
    """One, two and three; of many the first few."""
    names = list(words)
    if len(names) > MOST + 1:
        names = [*names[:MOST], f"{len(names) - MOST} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
