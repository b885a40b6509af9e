"""Heat maps: matrices side by side on one colour scale."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posenc_jax.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style.styled
def heat_maps(
    maps: Mapping[str, np.ndarray],  # title -> [rows, columns]
    *,
    limits: tuple[float, float] | None = None,
    label: str = "",
    x: str = "",
    y: str = "",
    spans: Mapping[str, float] | None = None,
    across: int | None = None,
    title: str = "",
) -> "Figure":
    """Matrices on one colour scale, `across` in a row; NaN stays empty.

    Limits on both sides of zero get a scale with white at zero. `spans` has the extent of both axes
    of a square matrix, by title.
    """
    values = np.concatenate([np.ravel(matrix) for matrix in maps.values()])
    low, high = limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    across = len(maps) if across is None else across
    down = -(-len(maps) // across)
    figure, panels = style.panels(down, across, (4.2 * across, 3.8 * down))
    figure.set_layout_engine("compressed", h_pad=0.08)  # keeps panels square
    image: Any = None
    for axes, (name, matrix) in zip(panels, maps.items(), strict=False):
        axes.grid(False)
        end = (spans or {}).get(name)
        image = axes.imshow(
            matrix,
            extent=None if end is None else (0, end, end, 0),
            cmap="RdBu_r" if low < 0 < high else "viridis",
            vmin=low,
            vmax=high,
            aspect="equal",
        )
        axes.set(title=name, xlabel=x, ylabel=y)
        if end is not None:
            axes.set_xlim(-0.02 * end, end)  # keeps the first keys clear of the axis
    figure.colorbar(image, ax=panels, shrink=0.8, label=label)
    figure.suptitle(title)
    return figure
