"""Lines, panels and tables, which protocols and reports hand over to be drawn or printed."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from math import isfinite, isnan
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One method in a picture and in the table beside it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    look: dict[str, Any]  # options of matplotlib
    band: tuple[Sequence[float], Sequence[float]] | None = None  # low and high
    listed: bool = True  # in the legend
    method: Mapping[str, Any] | None = None  # columns of a row whose look it has below `look`


class Panels(NamedTuple):
    """Lines over tokens, side by side with a common vertical axis."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[Line]]  # by the title of their panel
    trained: Sequence[int] = ()  # lengths marked on the horizontal axis


class Table(NamedTuple):
    """Text for a terminal, Markdown, LaTeX, or with `kinds` and `marks` a report's page."""

    caption: str
    head: Sequence[str]  # the name of each column
    rows: Sequence[Sequence[str]]  # a name, and a value for each further column
    kinds: Sequence[str] = ("left",)  # of the first columns: left, words, prose or empty
    marks: Sequence[str] = ()  # of the rows: tie
    apart: int = 0  # of the last rows, which LaTeX sets below a rule, as baselines
    label: str = ""  # in LaTeX


NONE = "–"  # a cell without a value; "-" on a terminal, and a dash in LaTeX


def decimal(value: float | None, digits: int = 3) -> str:
    """A value as a cell of a table."""
    return NONE if value is None or isnan(value) else f"{value:.{digits}f}"


Interval = tuple[float, float]


def rounded(value: float | None, interval: Interval | None = None) -> str:
    """A value with two decimals, or three where its interval is narrower than 0.01."""
    fine = interval is not None and interval[1] - interval[0] < 0.01
    return decimal(value, 3 if fine else 2)


def ends(interval: Interval | None) -> str:
    """An interval as text; a dash where there is none."""
    if interval is None or not all(map(isfinite, interval)):
        return NONE
    return " to ".join(rounded(end, interval) for end in interval)


LINE, NAME, GAP = 80, 24, 2  # letters of a line, of a name beside its values, between columns
SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    NONE: "--",
}


def text(table: Table) -> str:
    """For a terminal: columns that do not fit a line continue below, under the same names."""
    rows = [["-" if cell == NONE else cell for cell in row] for row in table.rows]
    columns = list(zip(table.head, *rows, strict=True))
    names, values = columns[0], columns[1:]
    left = min(NAME, max(map(len, names)))
    widths = [max(map(len, column)) + GAP for column in values]
    lines, first = prose(table.caption), 0
    while first < len(values):
        last, width = first + 1, left + widths[first]
        while last < len(values) and width + widths[last] <= LINE:
            width, last = width + widths[last], last + 1
        for number, name in enumerate(names):
            if len(name) > left:  # on a line of its own
                lines.append(name)
            cells = "".join(values[i][number].rjust(widths[i]) for i in range(first, last))
            lines.append(f"{name if len(name) <= left else '':<{left}}{cells}".rstrip())
        first = last
    return "\n".join(lines)


def prose(*paragraphs: str) -> list[str]:
    """Paragraphs as lines, without breaking names."""
    wrapper = textwrap.TextWrapper(LINE, break_long_words=False, break_on_hyphens=False)
    return [
        line
        for paragraph in paragraphs
        for part in paragraph.splitlines()
        for line in wrapper.wrap(part)
    ]


def markdown(table: Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    body = "\n".join("| " + " | ".join(literal(cell) for cell in line) + " |" for line in lines)
    return f"{literal(table.caption)}\n\n{body}"


def literal(text: str) -> str:
    """A text that Markdown shows as it is, without markup, links and HTML."""
    return re.sub(r"[\\`*<&|]|(?<=\])\(", r"\\\g<0>", text)


def latex(table: Table) -> str:
    """With booktabs."""

    def form(cells: Sequence[str]) -> str:
        return " & ".join(map(tex, cells)) + r" \\"

    first = len(table.rows) - table.apart
    rule = [r"\midrule"] if 0 < first < len(table.rows) else []
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{tex(table.caption)}}}",
            *([rf"\label{{{table.label}}}"] if table.label else []),
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
            r"\toprule",
            form(table.head),
            r"\midrule",
            *map(form, table.rows[:first]),
            *rule,
            *map(form, table.rows[first:]),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def tex(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(SPECIAL.get(letter, letter) for letter in text)


FORMS = {"text": text, "markdown": markdown, "latex": latex}
