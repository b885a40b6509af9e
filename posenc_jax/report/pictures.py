"""The PNGs of a report, one for every protocol against length, and their captions."""

from pathlib import Path
from typing import TYPE_CHECKING

from posenc_jax.evaluation import protocols
from posenc_jax.plots import captions, curves, style
from posenc_jax.report import answers, figures, order, summary
from posenc_jax.report.gather import Gathered

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(data: Gathered, folder: Path, text: Gathered | None = None) -> list[Path]:
    """Draw a picture for every protocol, answers beside `text`; return the files."""
    drawn: dict[str, Figure | None] = {"answers": None, "gap": None}
    drawn |= answers.pictures(data, text)
    drawn["reach_and_order"] = order.picture(data)
    drawn |= {p: _picture(data, p) for p in protocols.against_length() if p not in drawn}
    captions_of = {}
    for name, figure in drawn.items():
        path = folder / f"{name}.png"
        style.formed(path).unlink(missing_ok=True)  # left by an earlier report
        if figure is not None:
            captions_of[style.save(figure, path)] = _caption(data, name)
    captions.write(folder / captions.FILE, captions_of)
    return list(captions_of)


def _caption(data: Gathered, name: str) -> str:
    """Caption: content, data and meaning of the bands."""
    if name == "reach_and_order":
        return (
            f"{name}: reach is the accuracy of answers without an older setting, relative to the "
            "ceiling; order is the accuracy of answers with one older setting in the window, from "
            "0 (a reader that takes either) to 1. Arrows go from L to the longest length; means "
            f"over seeds. Data: {summary.on_what(data, 'reach')} {captions.unpaired('seeds')}"
        )
    value = curves.VALUES[figures.value_of(name)]
    words = f"{protocols.find(name).title}. {value.capitalize()} against length, without extensions"
    if name in ("answers", "gap"):
        words = (
            "retrieval accuracy. The map shows accuracy by distance to the answer in tokens; the "
            "lines show accuracy against context, relative to the ceiling, for at most "
            f"{answers.MOST_LINES} methods from best to worst"
        )
    bands = "" if name == "gap" else f" {captions.unpaired('seeds')}"
    return f"{name}: {words}; means over seeds. Data: {summary.on_what(data, name)}{bands}"


def _picture(data: Gathered, protocol: str) -> "Figure | None":
    """Chart of all lines on the left; on the right a closer view of those near the best."""
    value = figures.value_of(protocol)
    lines = figures.against_length(data, protocol, value)
    if not lines:
        return None
    points = data.points[data.points.protocol == protocol]
    closer = curves.near(lines) if value == "bpb" else None
    views = (None,) if closer is None else (None, closer)
    return curves.chart(
        lines + curves.baselines(lines),
        y=curves.VALUES[value],
        views=views,
        title=f"{protocol}: {protocols.find(protocol).title}\n{figures.counts(points)}",
        size=(6 * len(views) + 2, 5),
        **figures.tokens_axis(points),
    )
