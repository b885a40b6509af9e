"""Lines of a report's charts, and the parts of its page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from posenc_jax.display import Line, Table
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.plots import style
from posenc_jax.report.frames import band_of, estimate
from posenc_jax.report.runs import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def value_of(protocol: str) -> str:
    """Value shown for a protocol: accuracy or bits per byte."""
    return "accuracy" if protocols.find(protocol).value == "accuracy" else "bpb"


def line(
    name: str,
    points: Frame,
    look: style.Look,
    value: str = "bpb",
    x: str = "length",
) -> Line:
    """Line of means over seeds where all are finite, with the intervals that all of them have."""
    found = {at: estimate(rows, value) for at, rows in points.groupby(x)}
    known = {at: one for at, one in found.items() if one is not None}
    return Line(name, list(known), [one.mean for one in known.values()], look, band_of(known))


def distinct(rows: Mapping[tuple[str, str], tuple]) -> set[tuple[str, str]]:
    """Pairs of group and method, without methods whose values equal a plainer one of the group.

    At the longest length `dynamic_yarn` equals `yarn`; at scale 1 every extension equals `none`.
    """
    plainest: dict[tuple, str] = {}
    for method, group in sorted(((m, g) for g, m in rows), key=lambda pair: plainness(pair[0])):
        plainest.setdefault((group, rows[group, method]), method)
    return {(group, method) for (group, _), method in plainest.items()}


def plainness(method: str) -> tuple:
    """Rank of a method among those with equal values: the plainest comes first."""
    follows = method.startswith(("dynamic_", "stepped_"))
    return method != "none", method not in BASELINES, follows, method


def counts_in_words(points: Frame) -> str:
    """Counts of targets behind the numbers at the longest length."""
    longest = points.sort_values("length").groupby("id", sort=False).counts.last()
    return "; ".join(longest.unique()[:3])


class Chart(NamedTuple):
    """A figure and its title."""

    title: str
    svg: str


class Block(NamedTuple):
    """Content of a section, shown only where every control in `when` has the given value."""

    when: Mapping[str, str] = {}
    heading: str = ""
    text: str = ""
    charts: Sequence[Chart] = ()
    table: Table | None = None


class Select(NamedTuple):
    """A drop-down control; `options` maps its values to their labels."""

    name: str
    label: str
    options: Mapping[str, str]
    chosen: str = ""


class Section(NamedTuple):
    """A part of the page, with its controls above the content they show or hide."""

    title: str
    sentence: str
    blocks: Sequence[Block]
    controls: Sequence[Select] = ()


def chart(figure: "Figure", name: str, title: str) -> Chart:
    """The name must be unique on the page."""
    return Chart(title, style.svg(figure, name, title))
