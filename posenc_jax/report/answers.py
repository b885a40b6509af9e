"""Retrieval accuracy in a report: lines, a map by distance, oracles, reach and order."""

import os
from collections.abc import Container
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from posenc_jax.display import Line
from posenc_jax.evaluation.protocols.latest import ALL
from posenc_jax.evaluation.statistics import over_seeds
from posenc_jax.plots import answers, curves, style
from posenc_jax.plots.answers import Arrow, Place, reach_and_order
from posenc_jax.report import figures
from posenc_jax.report.runs import Frame, Gathered

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ADMITTED = 0.8  # share of the range from chance to ceiling that an oracle must reach
FEWEST_ANSWERS = 20  # per cell of the map; with fewer the accuracy is too uncertain
MOST_LINES = 8  # in a picture, besides the controls; the map above has every row
WORTH_A_LINE = 0.1  # gain in accuracy from which an extension is drawn beside its encoding
SEES_NO_FURTHER = 0.08  # largest difference beyond L from the accuracy of the window of L


class Answers(NamedTuple):
    """Accuracy of every method of every group and seed."""

    points: Frame  # protocol `answers`, with accuracy `relative` to the ceiling
    gaps: Frame  # protocol `gap`
    trained: int  # L of all runs but the oracles
    longest: int
    names: dict[str, str]  # of groups; the encoding where it is unique among them


def collect(data: Gathered) -> Answers | None:
    """Collect the answers of a report; None where none were scored."""
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


def legend_entry(results: Answers, group: str, method: str) -> str:
    """Name of a line or a row."""
    if method == "window":
        return "a window of L"
    name = results.names[group]
    return name if method == "none" else f"{name} + {method}"


def at_longest(results: Answers) -> dict[tuple[str, str], float]:
    """Accuracy of every group and method at the longest length, best first."""
    points = results.points[results.points.length == results.longest]
    means = points.groupby(["group", "method"]).accuracy.mean()
    best = sorted(means.items(), key=lambda item: (-item[1], figures.plainness(item[0][1])))
    return {(str(group), str(method)): float(value) for (group, method), value in best}


def oracles(data: Gathered, results: Answers) -> dict[str, float]:
    """Accuracy at the longest length of the groups trained at it; none where that is L."""
    if results.trained >= results.longest:
        return {}
    long_runs = {run["group"] for run in data.runs if run["trained"] >= results.longest}
    best = at_longest(results)
    return {group: best[group, "none"] for group in long_runs if (group, "none") in best}


def display_names(data: Gathered, results: Answers) -> dict[str, str]:
    """Name of every group, with oracles marked."""
    known = oracles(data, results)
    return {g: f"{name}, oracle" if g in known else name for g, name in results.names.items()}


def admitted(data: Gathered, results: Answers) -> str:
    """Sentence on whether the task measures reach."""
    known, floor, floor_name = oracles(data, results), *_floor(results)
    if results.trained >= results.longest:
        return "No run was evaluated beyond the trained length."
    if not known:
        return (
            f"There is no oracle trained at {results.longest} tokens, so limits of learning and of "
            "reach cannot be distinguished."
        )
    group = max(known, key=lambda group: known[group])
    oracle, accuracy = results.names[group], known[group]
    share = (accuracy - floor) / (1 - floor)
    verdict = "is admitted" if share >= ADMITTED else "measures learning, so it is not admitted"
    return (
        f"The oracle {oracle}, trained at {results.longest} tokens, is right in {accuracy:.3f}, "
        f"{share:.0%} of the way from {floor_name} ({floor:.3f}) to the ceiling. "
        f"The task {verdict}."
    )


def _floor(results: Answers) -> tuple[float, str]:
    """Baseline of an oracle's accuracy, with its name: a reader without order, else chance."""
    orderless = results.points.orderless[results.points.length == results.longest].dropna()
    if len(orderless):
        return float(orderless.mean()), "a reader without order"
    return float(results.points.chance.dropna().mean()), "chance"


def lines(data: Gathered, results: Answers, most: int | None = None) -> list[Line]:
    """Lines of every encoding and its best extension where that gains, best first; then controls.

    At most `most` of them are kept, spread from best to worst.
    """
    looks = figures.looks(data)
    numbers = {group: number for number, group in enumerate(figures.groups(data))}
    result = []
    for group, method in _spread(drawn_methods(data, results), most):
        points = results.points[(results.points.group == group) & (results.points.method == method)]
        name, gid = legend_entry(results, group, method), f"group-{numbers[group]}"
        look = look_with_method(looks[group], method)
        result.append(figures.line(name, points, look, "relative", gid=gid))
    return result + controls(data, results)


def drawn_methods(data: Gathered, results: Answers) -> list[tuple[str, str]]:
    """Groups and methods of the lines, best first."""
    known, best = oracles(data, results), at_longest(results)
    chosen: dict[str, list[str]] = {}  # methods drawn per group, best first
    pairs = []
    for (group, method), value in best.items():
        methods = chosen.setdefault(group, [])
        gains = not methods and value > best.get((group, "none"), 0.0) + WORTH_A_LINE
        if group in known or method == "window" or not (method == "none" or gains):
            continue
        methods.append(method)
        pairs.append((group, method))
    return pairs


def _spread(pairs: list[tuple[str, str]], most: int | None) -> list[tuple[str, str]]:
    """At most `most` pairs: the best, its encoding, and the others evenly thinned."""
    if most is None or len(pairs) <= most:
        return pairs
    always = [pair for pair in pairs if pair in (pairs[0], (pairs[0][0], "none"))]
    others = [pair for pair in pairs if pair not in always]
    indices = np.linspace(0, len(others) - 1, most - len(always)).round().astype(int)
    chosen = [*always, *(others[place] for place in indices)]
    return [pair for pair in pairs if pair in chosen]


def look_with_method(plain: style.Look, method: str) -> dict[str, Any]:
    """Look of an encoding, dashed with an extension."""
    fields = plain._asdict()
    return fields if method == "none" else fields | {"linestyle": "--", "markerfacecolor": "white"}


def controls(data: Gathered, results: Answers) -> list[Line]:
    """Lines of the ceiling, the reader without order, the window of L and the oracles."""
    lengths = sorted(results.points.length.unique())
    result = [curves.CEILING._replace(x=lengths, y=[1.0] * len(lengths))]
    relative = results.points.assign(relative=results.points.orderless / results.points.ceiling)
    known = relative.groupby("length").relative.mean().dropna()
    result.append(curves.ORDERLESS._replace(x=list(known.index), y=list(known)))
    window = results.points[results.points.method == "window"]
    window = window[window.trained == results.trained]
    result.append(figures.line("window: the last L tokens", window, dict(style.WINDOW), "relative"))
    names = display_names(data, results)
    for group in oracles(data, results):
        points = results.points[(results.points.group == group) & (results.points.method == "none")]
        look = {"color": figures.looks(data)[group].color, "linestyle": ":", "linewidth": 1.2}
        result.append(figures.line(names[group], points, look, "relative"))
    return [line._replace(seeds=(), band=None) for line in result if line.x]


def grid(
    data: Gathered, results: Answers, *, brief: bool = False
) -> tuple[np.ndarray, list[str], list[str]]:
    """Accuracy by method and distance to the answer, with the names of rows and columns.

    Rows are ordered by accuracy at the longest length. One row is the mean of all windows of L; it
    also covers extensions that see no further. The brief map has only the best extension of
    each group, where it gains.
    """
    parts = list(dict.fromkeys(results.gaps.part))
    parts.sort(key=lambda part: int(part.partition("-")[0]))
    known = oracles(data, results)
    means = results.gaps.groupby(["group", "method", "part"]).accuracy.mean()
    rows: dict[tuple[str, str], tuple] = {}
    for group, method in at_longest(results):
        if (group, method) in means.index.droplevel("part"):
            values = (means.get((group, method, part), np.nan) for part in parts)
            rows[group, method] = tuple(values)
    order = [*(p for p in rows if p[0] in known), *(p for p in rows if p[0] not in known)]
    kept = figures.distinct(rows)
    pairs = [p for p in order if p[1] == "none" or p[0] not in known and p in kept]
    pairs = [p for p in pairs if p[1] != "window"]
    windows = [p for p in order if p[1] == "window" and p[0] not in known]
    window = tuple(np.mean([rows[pair] for pair in windows], axis=0)) if windows else ()
    beyond = [int(part.partition("-")[0]) > results.trained for part in parts]
    near = {p for p in pairs if p[1] != "none" and windows and any(beyond)}
    near = {p for p in near if _close(rows[p], window, beyond)}
    named = results._replace(names=display_names(data, results))
    pairs = [p for p in pairs if p not in near]
    if brief:
        first = {group: (group, method) for group, method in reversed(pairs)}
        pairs = [p for p in pairs if p[1] == "none" or p == first[p[0]]]
    names = [legend_entry(named, *pair) for pair in pairs] + (
        ["windows of L (mean)"] if windows else []
    )
    if near:
        names[-1] = ", ".join([names[-1], *sorted({method for _, method in near})])
    values = np.array([*(rows[pair] for pair in pairs), *([window] if windows else [])])
    orderless = results.gaps.groupby("part").orderless.mean()
    if orderless.notna().any():
        names.append("no order: one of the settings seen")
        values = np.vstack([values, [orderless.get(part, np.nan) for part in parts]])
    unknown = parts_with_few_answers(results.gaps)
    return np.where([part in unknown for part in parts], np.nan, values), names, parts


def parts_with_few_answers(points: Frame) -> set[str]:
    """Parts with too few answers to show an accuracy."""
    counts = points.groupby("part").answers.max()
    return {str(part) for part in counts.index[counts < FEWEST_ANSWERS]}


def _close(row: tuple, window: tuple, chosen: list[bool]) -> bool:
    distance = np.abs(np.subtract(row, window))[chosen]
    return bool(np.all(distance < SEES_NO_FURTHER))


def text(
    data: Gathered, results: Answers, own: bool, extended: Container[tuple[str, str]] = ()
) -> list[Line]:
    """Bits of text against context, as trained and for the `extended` pairs of encoding and method.

    Encodings with an extended method also get the window of L. Groups that answer are included only
    if `own`: the text comes from separate runs.
    """
    points = data.points[(data.points.protocol == "same_token") & data.points.accuracy.isna()]
    looks = figures.looks(data)
    result = []
    for group, of_group in points.groupby("group", sort=False):
        if not own and group in results.names:
            continue
        encoding, methods = of_group.encoding.iloc[0], list(of_group.method.unique())
        shown = [method for method in methods if (encoding, method) in extended]
        for method in (*(["window"] if shown else []), *shown, "none"):
            look = (
                style.WINDOW if method == "window" else look_with_method(looks[str(group)], method)
            )
            own_points = of_group[of_group.method == method]
            result.append(figures.line(str(group), own_points, dict(look)))
    return [line for line in result if line.x]


def pictures(data: Gathered, text_runs: Gathered | None = None) -> "dict[str, Figure]":
    """One picture for a screen, or its two parts for a paper's column."""
    results = collect(data)
    if results is None or results.gaps.empty:
        return {}
    if not style.narrow():
        headline = picture(data, text_runs)
        return {} if headline is None else {"answers": headline}
    values, names, parts = grid(data, results)
    chosen_lines = lines(data, results, MOST_LINES)
    lengths = sorted(results.points.length.unique())
    label = curves.VALUES["relative"]
    return {
        "answers": curves.chart(chosen_lines, y=label, lengths=lengths, trained=[results.trained]),
        "gap": answers.by_gap(values, names, parts, results.trained),
    }


def picture(data: Gathered, text_runs: Gathered | None = None) -> "Figure | None":
    """Accuracy of answers with a small chart of bits of text, by default from `data`."""
    results = collect(data)
    if results is None or results.gaps.empty:
        return None
    values, names, parts = grid(data, results, brief=True)
    title = f"Retrieval accuracy by distance to the answer, trained at {results.trained} tokens"
    encodings = dict(zip(results.points.group, results.points.encoding, strict=True))
    pairs = [(encodings[group], method) for group, method in drawn_methods(data, results)]
    extended = {pair for pair in pairs if pair[1] != "none"}
    text_lines = text(text_runs or data, results, text_runs is not None, extended)
    words = f"{MOST_LINES} of {len(pairs)} methods, from best to worst; the map has all"
    note = words if len(pairs) > MOST_LINES else ""
    chosen = lines(data, results, MOST_LINES)
    return answers.headline(chosen, text_lines, values, names, parts, results.trained, title, note)


WORTH_A_MARK = 0.03  # gain from which an extension is drawn, in the lower of reach and order


class Ordered(NamedTuple):
    """Reach and order by group, method, length and seed."""

    points: Frame  # columns group, method, length, seed, reach, order
    trained: int  # L of all runs but the oracles
    longest: int


def collect_order(data: Gathered) -> Ordered | None:
    """Collect reach and order; None where either protocol is missing.

    Reach is the accuracy without an older setting, relative to the ceiling; order the accuracy with
    one, rescaled from 0 for a reader without order to 1.
    """
    keys = ["group", "method", "length", "seed", "trained"]
    points = data.points
    reach = points[points.protocol == "reach"]
    latest = points[(points.protocol == "latest") & (points.part == ALL)]
    if reach.empty or latest.empty:
        return None
    reach = reach.assign(reach=reach.accuracy / reach.ceiling)[[*keys, "reach"]]
    rescaled = (latest.accuracy - latest.orderless) / (1 - latest.orderless)
    merged = pd.merge(reach, latest.assign(order=rescaled)[[*keys, "order"]], on=keys)
    longest = int(merged.length.max())
    beyond = merged[merged.trained < longest]
    trained = int(beyond.trained.min()) if len(beyond) else longest
    return Ordered(merged, trained, longest)


def arrows(data: Gathered, results: Ordered, *, brief: bool = False) -> list[Arrow]:
    """Arrows from L to the longest length, best first; an oracle is a point.

    The brief list has every encoding as trained, its best extension, and the mean window of L.
    """
    scored = collect(data)
    looks, result = figures.looks(data), []
    named = None if scored is None else scored._replace(names=display_names(data, scored))
    shown = _brief_order(results) if brief else None
    for (group, method), rows in results.points.groupby(["group", "method"], sort=False):
        lengths = set(rows.length)
        if results.longest not in lengths:
            continue
        if shown is not None and (group, method) not in shown:
            continue
        oracle = (rows.trained >= results.longest).all()
        end = _order_place(rows[rows.length == results.longest])
        begin = (
            _order_place(rows[rows.length == results.trained])
            if results.trained in lengths
            else end
        )
        name = f"{group} + {method}" if named is None else legend_entry(named, group, method)
        look = look_with_method(looks[group], method)
        if oracle:
            look = look | {"fillstyle": "left"}
        result.append(Arrow(name, look, end if oracle else begin, end))
    result.sort(key=lambda arrow: -min(arrow.end.reach, arrow.end.order))
    if brief:
        result += _window_arrow(results)
    return result


def _brief_order(results: Ordered) -> set[tuple[str, str]]:
    """Every group as trained, with its best method where that gains; oracles only as trained."""
    far = results.points[
        (results.points.length == results.longest) & (results.points.method != "window")
    ]
    scores = far.groupby(["group", "method", "trained"])[["reach", "order"]].mean().min(axis=1)
    best: dict[tuple[str, str], float] = {}
    for (group, method, trained), value in scores.items():
        if method == "none" or trained < results.longest:
            best[str(group), str(method)] = float(value)
    chosen = {pair for pair in best if pair[1] == "none"}
    for group, _ in list(chosen):
        top = max((pair for pair in best if pair[0] == group), key=lambda pair: best[pair])
        if best[top] > best[group, "none"] + WORTH_A_MARK:
            chosen.add(top)
    return chosen


def _window_arrow(results: Ordered) -> list[Arrow]:
    """Arrow of the mean over all windows of L."""
    points = results.points[
        (results.points.method == "window") & (results.points.trained < results.longest)
    ]
    at = [points[points.length == length] for length in (results.trained, results.longest)]
    if any(at_length.empty for at_length in at):
        return []
    begin, end = (Place(float(p.reach.mean()), float(p.order.mean())) for p in at)
    return [
        Arrow("windows of L (mean)", {"color": style.WINDOW["color"], "marker": "x"}, begin, end)
    ]


def _order_place(points: Frame) -> Place:
    spread = [over_seeds(points[name]) for name in ("reach", "order")]
    ends = [None if interval is None else interval[1:] for interval in spread]
    return Place(float(points.reach.mean()), float(points.order.mean()), *ends)


def picture_of_order(data: Gathered) -> "Figure | None":
    results = collect_order(data)
    if results is None:
        return None
    return reach_and_order(arrows(data, results, brief=True), results.trained, results.longest)
