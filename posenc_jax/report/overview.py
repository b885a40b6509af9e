"""The first screen of a report: loss and retrieval against length, a claim and verdicts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from math import floor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posenc_jax import composition
from posenc_jax.display import Line, Table, rounded
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.plots import curves, style
from posenc_jax.report import answers, figures
from posenc_jax.report.ranking import Rank, Rankings, right
from posenc_jax.report.runs import Frame, ReportData
from posenc_jax.runtime.terminal import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Method = tuple[str, str]  # the name of a group on this screen, and what is applied to it
MOST_LINES = 10  # of a picture, baselines included
MOST_VERDICTS = 10
ON_PAGE = 4.4  # inches of a picture, so that its letters can be read on a telephone
WORTH_A_LINE = 0.05  # gain of an extension, in bits or accuracy, if not all are drawn
WINDOW = BASELINES["window"]
NULL = "null: nothing beyond L"
TOP = 1.6  # of the median loss, above which a line leaves its picture


class Panel(NamedTuple):
    """Every method by one protocol."""

    protocol: str
    value: str  # shown: bpb, nll where the tokenizer loses text, accuracy
    lines: Mapping[Method, Line]  # best first
    baselines: Sequence[Line]  # grey
    trained: Sequence[int]
    longest: int
    ranks: Sequence[Rank]  # at the longest length, best first
    names: Mapping[str, str]  # of groups
    chance: float  # accuracy of a guess
    trained_of: Mapping[str, int]  # L of groups
    window: tuple[str, float] | None  # the group with the best window of L there, and its value

    @property
    def ties(self) -> str:
        """Those that tie with the best, in words."""
        names = [self.name(rank) for rank in self.ranks if rank.verdict == "tie"]
        return names[0] if len(names) == 1 else f"{len(names)} others" if names else ""

    @property
    def is_retrieval(self) -> bool:
        return self.value == "accuracy"

    @property
    def window_wins(self) -> bool:
        """True if that window is better than the best method, as means are printed."""
        if self.window is None:
            return False
        window = 1 - self.window[1] if self.is_retrieval else self.window[1]
        return self.ranks[0].loss - window >= 0.005

    def name(self, rank: Rank) -> str:
        return self.lines[self.names[rank.group], rank.method].name

    def in_window(self, size: str) -> str:
        """The run with the best window, in words."""
        assert self.window is not None
        return f"{style.written(self.names[self.window[0]])} in a window of {size}"


Source = tuple[str, ReportData, Rankings]  # a protocol, and the runs it was measured on


def first(data: ReportData, ranks: Rankings, text: ReportData, of_text: Rankings) -> list[Panel]:
    """Loss of `text`, and retrieval; without what was not measured."""
    text = replace(text, points=text.points[text.points.accuracy.isna()])
    return panels([(protocols.HEADLINE, text, of_text), ("answers", data, ranks)])


def panels(sources: Sequence[Source], *, every: bool = False) -> list[Panel]:
    """A panel per protocol that was measured; a method has the same look in all.

    With `every` the baselines of several groups are lines of their own, as methods are.
    """
    scored = [(*source, scores(source[1], source[0])) for source in sources]
    scored = [one for one in scored if not one[-1].empty]
    names = [answers.short_names(data, points) for _, data, _, points in scored]
    encodings = {
        (known[row.group], row.method): row.encoding
        for (*_, points), known in zip(scored, names, strict=True)
        for row in points.drop_duplicates(["group", "method"]).itertuples()
    }
    scales = {scale for *_, points in scored for scale in points.scale.dropna()}
    of = partial(_panel, looks=looks_of(encodings), one_scale=len(scales) < 2, every=every)
    return [
        of(protocol, data, points, ranks.extended.get(protocol, {}), known)
        for (protocol, data, ranks, points), known in zip(scored, names, strict=True)
    ]


def value_in(points: Frame, protocol: str) -> str:
    """Value shown for some rows of a protocol: nats per token where none has bits per byte."""
    value = figures.value_of(protocol)
    lossy = value == "bpb" and len(points) and points.bpb.isna().all()
    return "nll" if lossy else value


def scores(data: ReportData, protocol: str) -> Frame:
    """Rows of a protocol with a `score`: bits per byte, or accuracy relative to the ceiling."""
    points = data.points[data.points.protocol == protocol]
    value, unit = value_in(points, protocol), 1.0
    if value == "accuracy":
        unit = points.ceiling.fillna(1.0)
    ends = {f"score{end}": points[value + end] / unit for end in ("", "_low", "_high")}
    points = points.assign(**ends)
    return points[points.score.notna()]


def looks_of(encodings: Mapping[Method, str]) -> dict[Method, style.Look]:
    """Look of each method: of one group its own, else that of its encoding or, where several groups
    share it, of one that is not shown, dashed for extensions."""
    if len({name for name, _ in encodings}) == 1:
        methods = [method for _, method in encodings]
        found = style.looks_of_methods(next(iter(encodings.values())), methods)
        return {pair: look | {"markersize": 4} for pair, look in zip(encodings, found, strict=True)}
    looks: dict[Method, style.Look] = {}
    plain: dict[str, style.Look] = {}
    spare = (name for name in style.ENCODINGS if name not in encodings.values())
    dashes: dict[str, Iterator] = {}
    for (name, method), encoding in encodings.items():
        if name not in plain:
            own = style.look_of_encoding(encoding) | {"markersize": 4}
            other = next(spare, encoding) if own in plain.values() else encoding
            plain[name] = own | style.look_of_encoding(other)
        looks[name, method] = look = plain[name]
        if method != "none":
            dash = next(dashes.setdefault(name, cycle(style.OTHERS)))
            looks[name, method] = look | {"linestyle": dash, "markerfacecolor": "white"}
    return looks


def _panel(
    protocol: str,
    data: ReportData,
    points: Frame,
    tables: Mapping[int, Sequence[Rank]],
    names: Mapping[str, str],
    looks: Mapping[Method, style.Look],
    one_scale: bool,
    every: bool,
) -> Panel:
    longest, value = int(points.length.max()), value_in(points, protocol)
    is_retrieval = value == "accuracy"
    oracles = points[is_retrieval & (points.trained >= longest)]
    if len(oracles) < len(points):
        points = points.drop(oracles.index)
    grey = points.method.isin(BASELINES)
    if every and (points.group.nunique() > 1 or grey.all()):
        grey = points.method.isin(())
    lines: dict[Method, Line] = {}
    for (group, method), rows in points[~grey].groupby(["group", "method"], sort=False):
        name, words = names[group], method
        if method not in BASELINES:
            parts = composition.parts(method)
            if one_scale:  # the ratio of the lengths, as a rule
                parts = [part._replace(scale=None) for part in parts]
            words = composition.text(parts)
        line = figures.line(style.with_method(name, words), rows, looks[name, method], "score")
        lines[name, method] = line._replace(band=_to_best(line, rows, tables, value))
    sign = -1 if is_retrieval else 1
    best = sorted(
        ((method, line) for method, line in lines.items() if line.x),
        key=lambda item: (-item[1].x[-1], sign * item[1].y[-1], figures.plainness(item[0][1])),
    )
    far = points[points.length == longest]
    windows = far[far.method == "window"].groupby("group")[value].mean()
    group = (windows * sign).idxmin() if len(windows) else None
    named = "" if points.group.nunique() == 1 or group is None else names[str(group)]
    return Panel(
        protocol,
        value,
        dict(best),
        _baselines(points[grey | (points.method == "none")], oracles, sign, group, named),
        sorted(map(int, points.trained.unique())),
        longest,
        tables.get(longest, ()),
        names,
        chance=float(far.chance.mean()),
        trained_of=points.groupby("group").trained.first().to_dict(),
        window=None if group is None else (str(group), float(windows[group])),
    )


def _to_best(
    line: Line, rows: Frame, tables: Mapping[int, Sequence[Rank]], value: str
) -> tuple[list[float], list[float]]:
    """The ends of paired intervals of the difference to the best of every length; nan for it."""
    entry = (rows.group.iloc[0], rows.method.iloc[0])
    unit = (rows.groupby("length").score.mean() / rows.groupby("length")[value].mean()).to_dict()
    low, high = [], []
    for length, y in zip(line.x, line.y, strict=True):
        found = (r for r in tables.get(int(length), ()) if (r.group, r.method) == entry)
        rank = next((r for r in found if r.verdict != "best"), None)
        ends = (np.nan, np.nan) if rank is None else rank.by_seeds or rank.by_documents
        half = (ends[1] - ends[0]) / 2 * unit[length]
        low, high = [*low, y - half], [*high, y + half]
    return low, high


def _baselines(
    points: Frame, oracles: Frame, sign: int, group: str | None, named: str
) -> list[Line]:
    """The best window of L, a reader without order, and the best run trained at the longest."""
    look = style.WINDOW | style.GREY
    windows = points[(points.method == "window") & (points.group == group)]
    name = style.with_method(named, "window") if named else WINDOW
    found = [figures.line(name, windows, look, "score")] if len(windows) else []
    orderless = (points.orderless / points.ceiling).groupby(points.length).mean().dropna()
    if len(orderless):
        x, y = list(orderless.index), list(orderless)
        found.append(Line("without order", x, y, style.ORDERLESS | style.GREY))
    longer = oracles[(oracles.method == "none") & ~oracles.group.isin(points.group)]
    look = {"color": "0.5", "linestyle": ":"}
    lines = [
        figures.line(f"trained at {rows.trained.iloc[0]:,}", rows, look, "score")
        for _, rows in longer.groupby("group")
    ]
    found += [min(lines, key=lambda line: sign * line.y[-1])] if lines else []
    if points.group.nunique() == 1:
        found += _of_one_group(points)
    return [line._replace(band=None) for line in found]


def _of_one_group(points: Frame) -> list[Line]:
    """Baselines that are drawn where they cannot be taken for those of another group: streaming,
    and the null, which is `fresh` for the headline."""
    found = []
    rows = points[points.method == "streaming"]
    if len(rows):
        found.append(
            figures.line(BASELINES["streaming"], rows, style.STREAMING | style.GREY, "score")
        )
    if points.accuracy.notna().any():
        return found
    plain = points[(points.method == "none") & (points.length >= points.trained)]
    null = plain.assign(score=plain.null_nll.astype(float) * plain.score / plain.nll)
    line = figures.line(NULL, null, style.NULL | style.GREY, "score")
    if set(points.protocol) == {protocols.HEADLINE}:
        line = line._replace(name=BASELINES["fresh"], look=style.FRESH | style.GREY)
    return [*found, line] if line.x else found


def choices(shown: Sequence[Panel]) -> dict[str, tuple[str, list[Method]]]:
    """Selections of methods, by name, each with its label; the first is that of a picture."""
    values: dict[Method, float] = {}
    for panel in reversed(shown):
        values |= {m: line.y[-1] for m, line in panel.lines.items() if m not in values}
    plain = [method for method in values if method[1] == "none"]
    few = few_of(values, MOST_LINES - max((len(panel.baselines) for panel in shown), default=0))
    label = f"{len(few)} of {len(values)}, from best to worst"
    found = {"few": (label, few)} if len(few) < len(values) else {}
    found |= {"all": (f"all {len(values)}", list(values))}
    if 0 < len(plain) < len(values):
        found |= {"plain": (f"{len(plain)} as trained", plain)}
    return found


def few_of(values: Mapping[Method, float], most: int) -> list[Method]:
    """All methods, or of evenly thinned groups those as trained and with the best extension where
    that gains; `values` has the best first."""
    if len(values) <= most:
        return list(values)
    groups: dict[str, list[Method]] = {}
    for method, value in values.items():
        group = groups.setdefault(method[0], [])
        gain = abs(value - values.get((method[0], "none"), np.inf))
        if method[1] == "none" or not group and (len(groups) == 1 or gain > WORTH_A_LINE):
            group.append(method)
    few: list[Method] = []
    for count in range(len(groups), 0, -1):
        kept = np.linspace(0, len(groups) - 1, count).round().astype(int)
        few = [method for i in kept for method in list(groups.values())[i]]
        if len(few) <= most:
            break
    return few


def view(panel: Panel, methods: Iterable[Method]) -> curves.View:
    """The panel of a picture with these methods."""
    chosen = [panel.lines[method] for method in methods if method in panel.lines]
    chosen = chosen or list(panel.lines.values())
    drawn = sorted([*chosen, *panel.baselines], key=lambda line: line.y[-1])
    values = [value for line in drawn for value in line.y]
    if panel.is_retrieval:
        low, high = floor(10 * min(values)) / 10 - 0.1, max(1.0, *values)
        y, limits = curves.VALUES["relative"], (max(0.0, low), high + 0.05)
    else:
        low, high = min(values), max(values)
        high = min(high, TOP * drawn[len(drawn) // 2].y[-1])
        margin = 0.05 * (high - low) or 0.05
        y, limits = curves.VALUES[panel.value], (low - margin, high + margin)
    return curves.View(claim(panel), y, drawn, panel.trained, limits)


def picture(shown: Sequence[Panel], *, every: bool = False) -> "Figure | None":
    """The panels side by side, with ten lines at most or with every method."""
    found = choices(shown)
    _, methods = found["all"] if every else next(iter(found.values()))
    return curves.named(*(view(panel, methods) for panel in shown)) if shown else None


def charts(panel: Panel, shown: Sequence[Panel]) -> dict[str, figures.Chart]:
    """A chart of the panel for each choice of methods."""
    found = {}
    for key, (_, methods) in choices(shown).items():
        drawn = view(panel, methods)
        figure = curves.pointed(curves.named(drawn, each=ON_PAGE), [drawn])
        title = protocols.find(panel.protocol).title
        found[key] = figures.chart(figure, f"{panel.protocol}-{key}", title)
    return found


def claim(panel: Panel) -> str:
    """What the panel shows at its longest length."""
    if not panel.ranks:
        return protocols.find(panel.protocol).title
    best = panel.ranks[0]
    what = "answers most" if panel.is_retrieval else "has the lowest loss"
    where = f"at {panel.longest:,} tokens"
    if panel.window_wins:
        return f"{panel.in_window('L')} {what} {where}, then {panel.name(best)}"
    tied = f", tied with {panel.ties}" if panel.ties else ""
    return f"{panel.name(best)} {what} {where}{tied}"


def headline(shown: Sequence[Panel]) -> tuple[str, str]:
    """A sentence with one number, and its condition; empty where nothing is ranked."""
    ranked = [panel for panel in shown if panel.ranks]
    if not ranked:
        return "", ""
    panel = ranked[-1]
    best, first = panel.ranks[0], panel.window_wins
    shown_best = right(best) if panel.is_retrieval else best
    values = [(panel.name(best), best.group, rounded(shown_best.loss, shown_best.interval))]
    if panel.window is not None:
        group, value = panel.window
        words = panel.in_window(f"the last {panel.trained_of[group]:,} tokens")
        values.insert(0 if first else 1, (words, group, rounded(value)))
    (name, group, value), *others = values
    times = panel.longest / panel.trained_of[group]
    where = f"at {panel.longest:,} tokens"
    if times > 1:
        where += f", {times:g} times the trained length"
    if panel.is_retrieval:
        found = f"{name} answers {value} of the questions {where}."
        words = f"A guess is right in {rounded(panel.chance)}"
        words += "".join(f" and {other} in {value}" for other, _, value in others) + "."
    else:
        found = f"{name} has the lowest loss {where}: {value} bits per byte."
        words = "".join(f"{other} has {value}." for other, _, value in others)
    if panel.ties:
        words += f" Tied with {panel.name(best) if first else 'it'}: {panel.ties}."
    if len(best.seeds) > 1:
        return found, f"{words} Means of {len(best.seeds)} seeds."
    return found, f"{words} One seed each: another may change the order."


def verdicts(panel: Panel) -> Table:
    """A row per method at the longest length: its value, and a verdict in words."""
    rows = []
    for rank in panel.ranks[:MOST_VERDICTS]:
        value = right(rank) if panel.is_retrieval else rank
        rows.append([panel.name(rank), in_words(rank), rounded(value.loss, value.interval)])
    left = len(panel.ranks) - len(rows)
    if left:
        rows.append([f"{left} more in the full ranking below", "", ""])
    unit = "accuracy" if panel.is_retrieval else "bits per byte"
    return Table("", [f"at {panel.longest:,} tokens", "verdict", unit], rows, ("left", "words"))


def in_words(rank: Rank) -> str:
    """The verdict on an entry of a ranking."""
    behind = rounded(rank.behind, rank.by_seeds or rank.by_documents)
    if rank.verdict == "tie":
        return f"ties with the best, {behind} behind"
    if rank.verdict == "open":
        return f"{behind} behind, open: {why_open(rank)}"
    return "best" if rank.verdict == "best" else f"{behind} behind"


def why_open(rank: Rank) -> str:
    if not rank.units.enough:
        return str(rank.units)
    if rank.by_seeds is None:
        return counted(rank.shared, "seed")
    return f"{counted(rank.shared, 'seed')}, {counted(rank.comparisons, 'comparison')}"
