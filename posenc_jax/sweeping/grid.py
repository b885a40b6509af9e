"""A grid is a list of cells, a cell a dictionary of configuration fields."""

import builtins
from collections.abc import Iterable, Sequence
from itertools import chain as chained
from itertools import product as crossed
from typing import Any

Grid = Sequence[dict[str, Any]]


def axis(field: str, values: Iterable) -> Grid:
    """One cell per value of a field. The field `recipe` is the file that a cell starts from."""
    if isinstance(values, str):
        raise ValueError(f"axis({field!r}, ...) takes a list of values; got the text {values!r}")
    return [{field: value} for value in values]


def product(*grids: Grid) -> Grid:
    """Every cell of the first with every one of the next, and so on."""
    return [_merged(cells) for cells in crossed(*grids)]


def zip(*grids: Grid) -> Grid:  # noqa: A001 - the word its users expect
    """The first cell of each together, then the second of each, ..."""
    if len({len(grid) for grid in grids}) > 1:
        sizes = ", ".join(str(len(grid)) for grid in grids)
        raise ValueError(f"zip takes grids of one size, got {sizes} cells; product crosses them")
    return [_merged(cells) for cells in builtins.zip(*grids, strict=True)]


def chain(*grids: Grid) -> Grid:
    """The cells of the first, then those of the next."""
    return list(chained(*grids))


def _merged(cells: Iterable[dict]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for cell in cells:
        twice = merged.keys() & cell.keys()
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is set by two of the grids")
        merged |= cell
    return merged
