"""The PNGs of a report: one for every protocol against length."""

from pathlib import Path
from typing import TYPE_CHECKING

from posenc_jax.evaluation import protocols
from posenc_jax.plots import curves, style
from posenc_jax.report import answers, figures
from posenc_jax.report.gather import Gathered

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(data: Gathered, folder: Path, text: Gathered | None = None) -> list[Path]:
    """Draws a picture for every protocol, answers beside `text`; returns the files."""
    made = []
    for protocol in protocols.against_length():
        path = folder / f"{protocol}.png"
        path.unlink(missing_ok=True)  # of an earlier report
        answered = protocol == "answers"
        figure = answers.picture(data, text) if answered else _picture(data, protocol)
        if figure is not None:
            made.append(style.save(figure, path))
    return made


def _picture(data: Gathered, protocol: str) -> "Figure | None":
    """All lines on the left; on the right those near the best one, closer and without bands."""
    lines = figures.against_length(data, protocol)
    if not lines:
        return None
    points = data.points[data.points.protocol == protocol]
    closer = curves.near(lines)
    views = (None,) if closer is None else (None, closer)
    return curves.chart(
        lines + curves.baselines(lines),
        y=curves.VALUES["bpb"],
        views=views,
        title=f"{protocol}: {protocols.find(protocol).title}\n{figures.counts(points)}",
        size=(6 * len(views) + 2, 5),
        **figures.tokens_axis(points),
    )
