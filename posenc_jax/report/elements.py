"""HTML elements of a page: figures with their tables, controls and sections."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pandas as pd

from posenc_jax.lines import Line
from posenc_jax.plots import curves, style
from posenc_jax.report.gather import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (6.2, 4.9)  # inches; half of a wide window, all of a narrow one


class Section(NamedTuple):
    """A part of the page, with its controls above the content they show or hide."""

    title: str
    sentence: str
    content: str
    controls: str = ""

    def html(self) -> str:
        controls = tag("div", self.controls, class_="controls") if self.controls else ""
        words = [tag("h2", escape(self.title)), tag("p", escape(self.sentence))]
        return tag("section", *words, controls, self.content)


class Row(NamedTuple):
    """A table row; the control of its group hides it together with the group's lines."""

    cells: Sequence[str]
    group: str = ""  # KIND-NUMBER, like the gid of a line
    class_: str = ""


def tag(element: str, /, *content: str, **attributes: Any) -> str:
    """An HTML element; content must be HTML already, attributes are escaped."""
    parts = [
        element,
        *(f'{k.rstrip("_").replace("_", "-")}="{escape(str(v))}"' for k, v in attributes.items()),
    ]
    return f"<{' '.join(parts)}>{''.join(content)}</{element}>"


def block(*content: str, **when: str) -> str:
    """A block shown only where every named control has the given value."""
    return tag("div", *content, class_="block", **{f"data_{k}": v for k, v in when.items()})


def select(name: str, label: str, options: Mapping[str, str], chosen: str = "") -> str:
    """A drop-down control; `options` maps its values to their labels."""
    entries = [
        tag("option", escape(words), value=value, **({"selected": ""} if value == chosen else {}))
        for value, words in options.items()
    ]
    return tag("label", escape(label), " ", tag("select", *entries, name=name, class_="control"))


def figure(drawn: "Figure", name: str, title: str) -> str:
    """A figure with a button that saves it as PNG; the name must be unique on the page."""
    picture = tag("div", style.svg(drawn, name, title), class_="scroll")
    button = tag("button", "PNG", type="button", class_="png", data_name=name)
    return tag("figure", picture, tag("figcaption", escape(title), " ", button))


def lines(
    drawn: Sequence[Line],
    name: str,
    title: str,
    *,
    x: str,
    y: str,
    closer: tuple[float, float] | None = None,
    every: int = 1,
    **options: Any,
) -> str:
    """A chart of lines, a closer view within limits, and a table of the lines' values.

    The table has every `every`-th place of the horizontal axis, its CSV all places.
    """
    if not any(line.x for line in drawn):
        return tag("p", "nothing to show yet")
    options |= {"x": x, "y": y, "size": SIZE, "below": True}
    every_line = [*drawn, *curves.baselines(drawn)]
    figures = figure(curves.chart(every_line, **options), name, title)
    if closer is not None:
        bare = [line._replace(band=None) for line in every_line]
        chart = curves.chart(bare, views=[closer], **options)
        figures += figure(chart, f"{name}-closer", f"{title}, closer")
    places = sorted({at for line in drawn for at in line.x})
    shown = sorted({*places[::every], *places[-1:]})
    rows = [Row([line.name, *(_cell(line, at) for at in shown)], line.gid or "") for line in drawn]
    values = table([y, *(f"{at:,.0f}" for at in shown)], rows)
    return tag("div", figures, class_="figures") + values + csv(_frame(drawn), name)


def _cell(line: Line, at: float) -> str:
    """A value, with half the width of its interval where it has one."""
    if at not in line.x:
        return "–"
    index = list(line.x).index(at)
    half = "" if line.band is None else f" ± {line.band[1][index] - line.y[index]:.3f}"
    return f"{line.y[index]:.3f}{half}"


def _frame(drawn: Iterable[Line]) -> Frame:
    rows = [
        {
            "line": line.name,
            "x": at,
            "value": line.y[i],
            "low": line.band[0][i] if line.band else None,
            "high": line.band[1][i] if line.band else None,
            "seeds": " ".join(f"{v:.6g}" for v in line.seeds[i]) if line.seeds else "",
        }
        for line in drawn
        for i, at in enumerate(line.x)
    ]
    return pd.DataFrame(rows)


def table(head: Sequence[str], rows: Iterable[Row], left: int = 1, prose: bool = False) -> str:
    """A scrolling table with `left` text columns; with `prose` the last column wraps."""

    def cells(kind: str, values: Sequence[str]) -> str:
        classes = [{"class_": "left"} if i < left else {} for i in range(len(values))]
        if prose:
            classes[-1] = {"class_": "prose"}
        return "".join(tag(kind, escape(v), **c) for v, c in zip(values, classes, strict=True))

    body = []
    for row in rows:
        kind, _, number = row.group.partition("-")
        data = {"data_kind": kind, "data_group": number} if number else {}
        if row.class_:
            data["class_"] = row.class_
        body.append(tag("tr", cells("td", row.cells), **data))
    top = tag("thead", tag("tr", cells("th", head)))
    html = tag("table", top, tag("tbody", *body))
    return tag("div", html, class_="scroll", tabindex="0")


def csv(frame: Frame, name: str) -> str:
    """A download link that embeds the rows."""
    data = f"data:text/csv;charset=utf-8,{quote(frame.to_csv(index=False))}"
    return tag("p", tag("a", f"{name}.csv", href=data, download=f"{name}.csv"), class_="files")


def ends(interval: tuple[float, float] | None) -> str:
    """An interval as text; a dash where there is none."""
    if interval is None or not all(map(isfinite, interval)):
        return "–"
    return f"{interval[0]:.3f} to {interval[1]:.3f}"
