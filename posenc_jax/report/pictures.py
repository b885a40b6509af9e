"""The pictures of a report, which are those of a run, and figures of a frame."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from posenc_jax.data.texts import HELD_OUT
from posenc_jax.display import Line
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.cells import BASELINES, Cell, label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.statistics import Units, smooth
from posenc_jax.evaluation.table import counts
from posenc_jax.plots import curves, style
from posenc_jax.plots.answers import by_gap
from posenc_jax.report import answers, overview
from posenc_jax.report.frames import band_of, estimates, selected
from posenc_jax.report.overview import MOST_LINES, Method, Panel
from posenc_jax.report.ranking import Rankings
from posenc_jax.report.runs import Frame, ReportData
from posenc_jax.report.tables import Named, named
from posenc_jax.runtime.terminal import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS: style.Look = dict(linestyle="", marker=".", markersize=4, alpha=0.6)
ORDER, BUDGET = "found_and_order", "budget"  # names of pictures that are of no single protocol


def figure(
    frame: Frame,
    rows: Named = "line",
    x: Named = "length",
    value: str = "bpb",
    *,
    title: str = "",
    y: str = "",
    limits: tuple[float, float] | None = None,
    looks: Sequence[style.Look] = (),
    seeds: bool = False,
    axes: "Axes | None" = None,
) -> "Figure":
    """Lines of means over seeds, each named at its end, with 95% intervals or, if asked, with the
    seeds as dots; of the rows of `posenc_jax.report.frame`.

    rows, x and value are as those of `posenc_jax.report.table`; axes those of a panel, else of a
    new figure.
    """
    places, lines, dots = named(frame, x), [], []
    column = x if isinstance(x, str) else ""
    ticks = [] if column else [name for name, _ in places]
    wheres = [where for _, where in places]
    at = [where[column] for where in wheres] if column else range(len(wheres))
    chosen = dict(named(frame, rows))
    looks = looks or _looks({name: selected(frame, row) for name, row in chosen.items()})
    for (name, row), look in zip(chosen.items(), looks, strict=True):
        every = zip(at, estimates(frame, row, wheres, value), strict=True)
        found = {place: one for place, one in every if one is not None}
        if not found:
            continue
        means = [one.mean for one in found.values()]
        lines.append(Line(name, list(found), means, look, None if seeds else band_of(found)))
        if seeds:
            at_each = [place for place, one in found.items() for _ in one.values]
            values = [v for one in found.values() for v in one.values]
            dots.append(Line(name, at_each, values, DOTS | {"color": look["color"]}))
    if not lines:
        raise ValueError(f"nothing to draw: these rows have no {value}")
    words = curves.LENGTH if column == "length" else column
    view = curves.View(title, y or value, lines, (), limits, ticks, words, dots)
    if axes is None:
        return curves.named(view)
    curves.panel(axes, view)
    return cast("Figure", axes.figure)


def _looks(chosen: Mapping[str, Frame]) -> list[style.Look]:
    """Looks of lines: by encoding, or of one encoding by method."""
    methods = {
        name: (own.encoding.iloc[0], own.method.iloc[0]) if len(own) else (name, "none")
        for name, own in chosen.items()
    }
    looks = overview.looks_of({method: method[0] for method in methods.values()})
    return style.distinct([looks[method] for method in methods.values()])


def draw(
    data: ReportData,
    ranks: Rankings,
    folder: Path,
    *,
    evaluation: str = HELD_OUT,
    shown: Sequence[Panel] | None = None,
) -> list[Path]:
    """Draw a picture for every protocol, of every method or, with the panels `shown` of a report,
    of the few that it shows; return the files, which another evaluation than the usual names."""
    captions_of, suffix = {}, "" if evaluation == HELD_OUT else f"-{evaluation}"
    for name, drawn in _every(data, ranks, shown):
        path = folder / f"{name}{suffix}.png"
        style.formed(path).unlink(missing_ok=True)  # left by an earlier report
        if drawn is not None:
            captions_of[style.save(drawn, path)] = _caption(data, name, shown)
    style.write_captions(folder / style.CAPTIONS.replace(".", f"{suffix}."), captions_of)
    return list(captions_of)


def _every(
    data: ReportData, ranks: Rankings, shown: Sequence[Panel] | None
) -> "Iterator[tuple[str, Figure | None]]":
    for protocol in protocols.shown():
        yield protocol.name, _of_protocol(protocol, data, ranks, shown)
    ordered = answers.ordered(data)
    yield ORDER, None if ordered is None else answers.picture_of_order(*ordered)
    yield BUDGET, _budget(data)


def _of_protocol(
    protocol: Protocol, data: ReportData, ranks: Rankings, shown: Sequence[Panel] | None
) -> "Figure | None":
    every = shown is None
    if protocol.by_place:
        return by_place(data, protocol, every=every)
    if protocol.name in protocols.against_length():
        own = overview.panels([(protocol.name, data, ranks)], every=every)
        if shown and own and protocol.name == "answers":
            own = shown
        return overview.picture(own, every=every)
    if protocol.name == "gap":
        results = answers.collect(data)
        if results is None or results.gaps.empty:
            return None
        values, names, parts = answers.grid(results)
        return by_gap(values, names, parts, results.trained, answers.claim(results))
    runs = [run for run in data.runs if run.in_means]
    panels = protocol.picture(runs[0].cells) if len(runs) == 1 else None
    return panels and curves.side_by_side(panels)


def by_place(data: ReportData, protocol: Protocol, *, every: bool = False) -> "Figure | None":
    """Loss at every place of the longest window, as means over neighbouring places and seeds."""
    runs = [run for run in data.runs if run.in_means]
    cells: dict[Method, list[Cell]] = {}
    found = [(run.group, cell) for run in runs for cell in run.cells]
    found = [(group, cell) for group, cell in found if cell.facts["protocol"] == protocol.name]
    longest = max((len(cell.by_place) for _, cell in found), default=0)
    for group, cell in found:
        if len(cell.by_place) == longest and np.isfinite(cell.by_place).all():
            cells.setdefault((group, label(cell.facts)), []).append(cell)
    if not cells:
        return None
    looks = overview.looks_of({method: own[0].facts["encoding"] for method, own in cells.items()})
    lines: dict[Method, Line] = {}
    for method, own in cells.items():
        windows = max(int(cell.windows[0]) for cell in own)
        x, y = smooth(np.mean([c.by_place / c.windows[0] for c in own], axis=0), windows)
        baseline = style.WINDOW | style.GREY if method[1] in BASELINES else {}
        look = style.SPARSE | looks[method] | baseline
        lines[method] = Line(style.with_method(*method), x.tolist(), y.tolist(), look)
    best = dict(sorted(lines.items(), key=lambda item: item[1].y[-1]))
    most = len(best) if every else MOST_LINES
    few = overview.few_of({method: line.y[-1] for method, line in best.items()}, most)
    drawn = [lines[method] for method in few]
    facts = [cell.facts for own in cells.values() for cell in own]
    if len(runs) == 1:
        plain = cells.get((runs[0].group, "none"), [])
        values = [(one, records.beyond_trained(one, runs[0].cells)) for one in plain]
        ends = [facts[0]["train_length"], facts[0]["length"]]
        look = style.NULL | style.GREY
        drawn += [Line(overview.NULL, ends, [v] * 2, look) for _, v in values if v is not None]
    counted_in = next(iter(cells.values()))[0]
    return curves.chart(
        curves.apart(drawn),
        x=curves.PLACE,
        y=curves.VALUES["nll"],
        lengths=sorted({one["length"] for one in facts}),
        trained=[one["train_length"] for one in facts],
        title=f"{protocol.name}: {protocol.title}",
        note=f"{counted_in.facts['evaluation']}: {counts(records.row(counted_in))}",
    )


def _budget(data: ReportData) -> "Figure | None":
    """Loss against training step, of one run with several checkpoints."""
    runs = [run for run in data.runs if run.in_means]
    if len(runs) != 1:
        return None
    cells = records.of_evaluation(
        records.read_cells(runs[0].folder / "eval"), runs[0].cells[0].facts["evaluation"]
    )
    return curves.by_step(records.rows(cells))


def _caption(data: ReportData, name: str, shown: Sequence[Panel] | None) -> str:
    """Caption: content, data and meaning of the bands."""
    if name == ORDER:
        return (
            f"{name}: found is the share of names set once, more than L tokens back, whose value "
            "is answered, freed of guesses; order the share of names set twice that are answered "
            "with the last value, of the pairs held (0.5 without order). Means over seeds. Data: "
            f"{on_what(data, 'found')} {style.unpaired('seeds')}"
        )
    protocol = protocols.HEADLINE if name == BUDGET else name
    words = f"{protocol}: {protocols.find(protocol).title}"
    if name == BUDGET:
        words += ", a line per length"
    if name == "gap":
        return f"{words}; means over seeds. Data: {on_what(data, name)}"
    if name == "answers":
        words += ", relative to the ceiling"
        words += ", beside the loss of text" if shown and len(shown) > 1 else ""
    if name in protocols.against_length() or protocols.find(protocol).by_place:
        few = f", at most {MOST_LINES} lines from best to worst"
        words += f"; means over seeds{'' if shown is None else few}"
    explain = style.paired if name in protocols.against_length() else style.unpaired
    return f"{words}. Data: {on_what(data, protocol)} {explain(_over(data, protocol))}"


def _over(data: ReportData, protocol: str) -> object:
    """What the intervals of a picture are over."""
    runs = [run for run in data.runs if run.in_means]
    if len(runs) > 1:
        return "seeds, or documents where there are fewer than three seeds"
    cells = [cell for run in runs for cell in run.cells if cell.facts["protocol"] == protocol]
    longest = max(cells, key=lambda cell: cell.facts["length"])
    return Units(int((longest.tokens > 0).sum()), longest.facts["unit"])


MOST = 4  # names in a list, before "and 3 more"


def on_what(data: ReportData, *scored: str) -> str:
    """L, size, data, targets of the protocols `scored`, and seeds of all evaluated runs."""
    runs = [run for run in data.runs if run.cells]
    if not runs:
        return ""
    shown = data.points[data.points.protocol.isin(scored)]
    longest = shown.sort_values("length").groupby(["id", "protocol"], sort=False).counts.last()
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.group, set()).add(run.seed)
    sizes = {(run.config.model.layers, run.config.model.width): None for run in runs}
    steps = sorted({run.config.steps for run in runs if not run.is_adopted})
    facts = [
        "L = " + _list(f"{length:,}" for length in sorted({run.trained for run in runs})),
        _list(f"{counted(layers, 'layer')} of width {width}" for layers, width in sizes),
        *([_list(counted(n, "step") for n in steps)] if steps else []),
        _list(counted(n, "seed") for n in sorted({len(s) for s in seeds.values()})) + " a group",
        "trained on "
        + _list(dict.fromkeys(run.data.partition(": ")[2] or "unknown" for run in runs)),
        *(["scored: " + _list(longest.unique())] if len(longest) else []),
    ]
    return f"{counted(len(runs), 'run')}; {'; '.join(facts)}."


def _list(words: Iterable[str]) -> str:
    """Words joined as "one, two and three"; of many the first few."""
    names = list(words)
    if len(names) > MOST + 1:
        names = [*names[:MOST], f"{len(names) - MOST} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
