"""What a report says of answers: who finds them, from how far, between ceiling and floor."""

import os
from collections.abc import Container
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posenc_jax.plots import answers, curves, style
from posenc_jax.plots.curves import Line
from posenc_jax.report import figures
from posenc_jax.report.gather import Frame, Gathered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ADMITTED = 0.8  # of the way from chance to ceiling, by an oracle
FEWEST_ANSWERS = 20  # of a cell of the map: a share of fewer is known to a fifth at best
MOST_LINES = 8  # of a picture beside its controls; the map above has every row
WORTH_A_LINE = 0.1  # what an extension must gain in accuracy to be drawn beside its encoding
SEES_NO_FURTHER = 0.08  # than the window of L: so close to its accuracy wherever answers lie beyond


class Answers(NamedTuple):
    """Accuracies of every method of every group, over the seeds."""

    points: Frame  # of the protocol `answers`, with accuracy `relative` to the ceiling
    gaps: Frame  # of the protocol `gap`
    trained: int  # L of all but the oracles
    longest: int
    names: dict[str, str]  # of groups; the encoding's where no other group that answers has it


def of(data: Gathered) -> Answers | None:
    """None where no answers were scored."""
    scored = data.points[data.points.accuracy.notna()]
    points = scored[scored.protocol == "answers"]
    if points.empty:
        return None
    points = points.assign(relative=points.accuracy / points.ceiling.fillna(1.0))
    longest = int(points.length.max())
    beyond = points[points.trained < longest]
    trained = int(beyond.trained.min()) if len(beyond) else longest
    gaps = scored[scored.protocol == "gap"]
    labels = {run["group"] for run in data.runs if run.get("label")}
    return Answers(points, gaps, trained, longest, _names(points, longest, labels))


def _names(points: Frame, longest: int, labels: set[str]) -> dict[str, str]:
    every = points[["group", "encoding", "trained"]].drop_duplicates("group")
    known = every[~every.group.isin(labels)].copy()
    known["oracle"] = known.trained >= longest  # which its name says
    alone = ~known.duplicated(["encoding", "oracle"], keep=False)
    longer = known.group[known.group != known.encoding]
    own = known.group.str.removeprefix(_shared(list(longer), set(known.encoding)))
    named = dict(zip(known.group, known.encoding.where(alone, own), strict=True))
    return {group: named.get(group, group) for group in every.group}


def _shared(groups: list[str], encodings: set[str]) -> str:
    """What all names begin with, `variables-`, unless it says the encoding."""
    start = os.path.commonprefix(groups)
    start = start[: start.rfind("-") + 1]
    said = any(word in encodings for word in start.split("-"))
    return "" if said or len(groups) < 2 else start


def entry(found: Answers, group: str, method: str) -> str:
    """What a line or a row is called."""
    if method == "window":
        return "a window of L"
    name = found.names[group]
    return name if method == "none" else f"{name} + {method}"


def at_longest(found: Answers) -> dict[tuple[str, str], float]:
    """The accuracy of every group and method at the longest length, the best first."""
    own = found.points[found.points.length == found.longest]
    means = own.groupby(["group", "method"]).accuracy.mean()
    best = sorted(means.items(), key=lambda item: (-item[1], figures.plainness(item[0][1])))
    return {(str(group), str(method)): float(value) for (group, method), value in best}


def oracles(data: Gathered, found: Answers) -> dict[str, float]:
    """Groups that were trained at the longest length, with their accuracy there."""
    groups = {run["group"] for run in data.runs if run["trained"] >= found.longest}
    best = at_longest(found)
    return {group: best[group, "none"] for group in groups if (group, "none") in best}


def called(data: Gathered, found: Answers) -> dict[str, str]:
    """What every group is called; an oracle is called one."""
    known = oracles(data, found)
    return {g: f"{name}, oracle" if g in known else name for g, name in found.names.items()}


def admitted(data: Gathered, found: Answers) -> str:
    """Whether the task measures reach: a sentence of the page."""
    known, floor, of_what = oracles(data, found), *_floor(found)
    if found.trained >= found.longest:
        return "Nothing was read beyond the trained length."
    if not known:
        return (
            f"There is no oracle: no run was trained at {found.longest} tokens, so what is learned "
            "and what is reached are not told apart."
        )
    name = max(known, key=lambda group: known[group])
    own = found.names[name]
    way = (known[name] - floor) / (1 - floor)
    word = "is admitted" if way >= ADMITTED else "measures learning, not reach: it is not admitted"
    return (
        f"The oracle {own}, trained at {found.longest} tokens, is right in {known[name]:.3f}, "
        f"{way:.0%} of the way from {of_what} ({floor:.3f}) to the ceiling: the task {word}."
    )


def _floor(found: Answers) -> tuple[float, str]:
    """What an oracle's accuracy counts from: that of a reader without order, or of a guess."""
    orderless = found.points.orderless[found.points.length == found.longest].dropna()
    if len(orderless):
        return float(orderless.mean()), "a reader without order"
    return float(found.points.chance.dropna().mean()), "chance"


def lines(data: Gathered, found: Answers, most: int | None = None) -> list[Line]:
    """Every encoding as trained, and its best extension where that gains; the best first.

    Of more than `most` some, from the best to the last; the controls follow as always.
    """
    looks = figures.looks(data)
    numbers = {group: number for number, group in enumerate(figures.groups(data))}
    made = []
    for group, method in _spread(drawn(data, found), most):
        points = found.points[(found.points.group == group) & (found.points.method == method)]
        name, gid = entry(found, group, method), f"group-{numbers[group]}"
        look = look_of(looks[group], method)
        made.append(figures.line(name, points, look, "relative", gid=gid))
    return made + controls(data, found)


def drawn(data: Gathered, found: Answers) -> list[tuple[str, str]]:
    """The groups and methods of the lines, the best first."""
    known, best = oracles(data, found), at_longest(found)
    chosen: dict[str, list[str]] = {}  # the methods drawn of every group, its best one first
    pairs = []
    for (group, method), value in best.items():
        own = chosen.setdefault(group, [])
        gains = not own and value > best.get((group, "none"), 0.0) + WORTH_A_LINE
        if group in known or method == "window" or not (method == "none" or gains):
            continue
        own.append(method)
        pairs.append((group, method))
    return pairs


def _spread(pairs: list[tuple[str, str]], most: int | None) -> list[tuple[str, str]]:
    """The best one, what it extends, and of the others every so many down to the last."""
    if most is None or len(pairs) <= most:
        return pairs
    first = [pair for pair in pairs if pair in (pairs[0], (pairs[0][0], "none"))]
    others = [pair for pair in pairs if pair not in first]
    places = np.linspace(0, len(others) - 1, most - len(first)).round().astype(int)
    chosen = [*first, *(others[place] for place in places)]
    return [pair for pair in pairs if pair in chosen]


def look_of(own: style.Look, method: str) -> dict[str, Any]:
    """Of an encoding as trained, or with an extension."""
    look = own._asdict()
    return look if method == "none" else look | {"linestyle": "--", "markerfacecolor": "white"}


def controls(data: Gathered, found: Answers) -> list[Line]:
    """The ceiling, the reader without order, the window of L and the oracles."""
    lengths = sorted(found.points.length.unique())
    made = [curves.CEILING._replace(x=lengths, y=[1.0] * len(lengths))]
    relative = found.points.assign(relative=found.points.orderless / found.points.ceiling)
    known = relative.groupby("length").relative.mean().dropna()
    made.append(curves.ORDERLESS._replace(x=list(known.index), y=list(known)))
    window = found.points[found.points.method == "window"]
    window = window[window.trained == found.trained]
    made.append(figures.line("window: the last L tokens", window, dict(style.WINDOW), "relative"))
    names = called(data, found)
    for group in oracles(data, found):
        own = found.points[(found.points.group == group) & (found.points.method == "none")]
        look = {"color": figures.looks(data)[group].color, "linestyle": ":", "linewidth": 1.2}
        made.append(figures.line(names[group], own, look, "relative"))
    return [line._replace(seeds=(), band=None) for line in made if line.x]


def grid(
    data: Gathered, found: Answers, *, brief: bool = False
) -> tuple[np.ndarray, list[str], list[str]]:
    """Accuracy by method and by how far back the answer stands; the best at the longest first.

    The mean of all windows of L is a row, which extensions that see no further share. The brief map
    has the best one of each group alone, where it gains.
    """
    parts = list(dict.fromkeys(found.gaps.part))
    parts.sort(key=lambda part: int(part.partition("-")[0]))
    known = oracles(data, found)
    means = found.gaps.groupby(["group", "method", "part"]).accuracy.mean()
    rows: dict[tuple[str, str], tuple] = {}
    for group, method in at_longest(found):
        if (group, method) in means.index.droplevel("part"):
            values = (means.get((group, method, part), np.nan) for part in parts)
            rows[group, method] = tuple(values)
    order = [*(p for p in rows if p[0] in known), *(p for p in rows if p[0] not in known)]
    kept = figures.distinct(rows)
    pairs = [p for p in order if p[1] == "none" or p[0] not in known and p in kept]
    pairs = [p for p in pairs if p[1] != "window"]
    windows = [p for p in order if p[1] == "window" and p[0] not in known]
    window = tuple(np.mean([rows[pair] for pair in windows], axis=0)) if windows else ()
    beyond = [int(part.partition("-")[0]) > found.trained for part in parts]
    near = {p for p in pairs if p[1] != "none" and windows and any(beyond)}
    near = {p for p in near if _close(rows[p], window, beyond)}
    named = found._replace(names=called(data, found))
    pairs = [p for p in pairs if p not in near]
    if brief:
        first = {group: (group, method) for group, method in reversed(pairs)}
        pairs = [p for p in pairs if p[1] == "none" or p == first[p[0]]]
    names = [entry(named, *pair) for pair in pairs] + (["windows of L (mean)"] if windows else [])
    if near:
        names[-1] = ", ".join([names[-1], *sorted({method for _, method in near})])
    values = np.array([*(rows[pair] for pair in pairs), *([window] if windows else [])])
    orderless = found.gaps.groupby("part").orderless.mean()
    if orderless.notna().any():
        names.append("no order: one of the settings seen")
        values = np.vstack([values, [orderless.get(part, np.nan) for part in parts]])
    unknown = few(found.gaps)
    return np.where([part in unknown for part in parts], np.nan, values), names, parts


def few(points: Frame) -> set[str]:
    """The parts whose answers are too few for a share."""
    asked = points.groupby("part").answers.max()
    return {str(part) for part in asked.index[asked < FEWEST_ANSWERS]}


def _close(one: tuple, other: tuple, chosen: list[bool]) -> bool:
    apart = np.abs(np.subtract(one, other))[chosen]
    return bool(np.all(apart < SEES_NO_FURTHER))


def text(
    data: Gathered, found: Answers, own: bool, extended: Container[tuple[str, str]] = ()
) -> list[Line]:
    """Bits of text against context; of groups that answer too only in runs of `own`.

    As trained, and of encodings with a method that is `extended` that one and the window of L.
    """
    points = data.points[(data.points.protocol == "same_token") & data.points.accuracy.isna()]
    looks = figures.looks(data)
    made = []
    for group, of_group in points.groupby("group", sort=False):
        if not own and group in found.names:
            continue
        encoding, methods = of_group.encoding.iloc[0], list(of_group.method.unique())
        shown = [method for method in methods if (encoding, method) in extended]
        for method in (*(["window"] if shown else []), *shown, "none"):
            look = style.WINDOW if method == "window" else look_of(looks[str(group)], method)
            own_points = of_group[of_group.method == method]
            made.append(figures.line(str(group), own_points, dict(look)))
    return [line for line in made if line.x]


def pictures(data: Gathered, text_runs: Gathered | None = None) -> "dict[str, Figure]":
    """One for a screen; for a paper's column its two parts."""
    found = of(data)
    if found is None or found.gaps.empty:
        return {}
    if not style.narrow():
        drawn = picture(data, text_runs)
        return {} if drawn is None else {"answers": drawn}
    values, names, parts = grid(data, found)
    made = lines(data, found, MOST_LINES)
    lengths = sorted(found.points.length.unique())
    label = curves.VALUES["relative"]
    return {
        "answers": curves.chart(made, y=label, lengths=lengths, trained=[found.trained]),
        "gap": answers.by_gap(values, names, parts, found.trained),
    }


def picture(data: Gathered, text_runs: Gathered | None = None) -> "Figure | None":
    """Those who answer, and beside them, small, runs that read text: of `data` if not given."""
    found = of(data)
    if found is None or found.gaps.empty:
        return None
    values, names, parts = grid(data, found, brief=True)
    title = f"Trained at {found.trained}. The answer was d tokens ago. Who finds it?"
    encodings = dict(zip(found.points.group, found.points.encoding, strict=True))
    pairs = [(encodings[group], method) for group, method in drawn(data, found)]
    extended = {pair for pair in pairs if pair[1] != "none"}
    read = text(text_runs or data, found, text_runs is not None, extended)
    few = f"{MOST_LINES} of {len(pairs)}, from best to worst; all above"
    note = few if len(pairs) > MOST_LINES else ""
    chosen = lines(data, found, MOST_LINES)
    return answers.headline(chosen, read, values, names, parts, found.trained, title, note)
