"""A grid is a list of jobs, a job a dictionary of configuration fields."""

import builtins
from collections.abc import Iterable, Sequence
from itertools import chain as chained
from itertools import product as crossed
from typing import Any

Grid = Sequence[dict[str, Any]]


def axis(field: str, values: Iterable) -> Grid:
    """One job per value of a field. The field `recipe` is the file that a job starts from."""
    if isinstance(values, str):
        raise ValueError(f"axis({field!r}, ...) takes a list of values; got the text {values!r}")
    return [{field: value} for value in values]


def product(*grids: Grid) -> Grid:
    """Every combination of one job from each grid."""
    return [_merged(jobs) for jobs in crossed(*grids)]


def zip(*grids: Grid) -> Grid:  # noqa: A001 - the expected word
    """The first job of each together, then the second of each, ..."""
    if len({len(grid) for grid in grids}) > 1:
        sizes = ", ".join(str(len(grid)) for grid in grids)
        raise ValueError(f"zip takes grids of one size, got {sizes} jobs; product crosses them")
    return [_merged(jobs) for jobs in builtins.zip(*grids, strict=True)]


def chain(*grids: Grid) -> Grid:
    """The jobs of all grids, one grid after the other."""
    return list(chained(*grids))


def _merged(jobs: Iterable[dict]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for job in jobs:
        twice = merged.keys() & job.keys()
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is set by two of the grids")
        merged |= job
    return merged
