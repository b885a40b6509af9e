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
    drawn: dict[str, Figure | None] = {"answers": None, "gap": None}
    drawn |= answers.pictures(data, text)
    drawn |= {one: _picture(data, one) for one in protocols.against_length() if one not in drawn}
    made = []
    for name, figure in drawn.items():
        path = folder / f"{name}.png"
        style.formed(path).unlink(missing_ok=True)  # of an earlier report
        if figure is not None:
            made.append(style.save(figure, path))
    return made


def _picture(data: Gathered, protocol: str) -> "Figure | None":
    """All lines on the left; on the right those near the best one, closer and without bands."""
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
