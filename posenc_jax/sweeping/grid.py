"""Grids of jobs: a grid is a list of jobs, a job a dictionary of configuration fields."""

import builtins
from collections.abc import Iterable, Sequence
from itertools import chain as chained
from itertools import product as crossed
from typing import Any

Grid = Sequence[dict[str, Any]]


def axis(field: str, values: Iterable) -> Grid:
    """One job per value of a field; the field `recipe` names the recipe file of a job."""
    if isinstance(values, str):
        raise ValueError(f"axis({field!r}, ...) takes a list of values; got the text {values!r}")
    return [{field: value} for value in values]


def product(*grids: Grid) -> Grid:
    """Every combination of one job from each grid."""
    return [_merged(jobs) for jobs in crossed(*grids)]


def zip(*grids: Grid) -> Grid:  # noqa: A001 - the expected word
    """Combine the first jobs of all grids, then the second jobs, and so on."""
    if len({len(grid) for grid in grids}) > 1:
        sizes = ", ".join(str(len(grid)) for grid in grids)
        raise ValueError(
            f"zip takes grids of equal size; got {sizes} jobs; use product for all combinations"
        )
    return [_merged(jobs) for jobs in builtins.zip(*grids, strict=True)]


def chain(*grids: Grid) -> Grid:
    """Concatenate grids."""
    return list(chained(*grids))


def _merged(jobs: Iterable[dict]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for job in jobs:
        repeated = merged.keys() & job.keys()
        if repeated:
            raise ValueError(f"{', '.join(sorted(repeated))} is set by more than one grid")
        merged |= job
    return merged
