"""The table of a report as plain text."""

import pandas as pd

from posenc_jax.evaluation import protocols
from posenc_jax.plots import curves
from posenc_jax.report import figures, learning
from posenc_jax.report.gather import Frame, Gathered

NAME = 24


def table(data: Gathered) -> str:
    """Bits per byte and accuracy of groups by length."""
    tables = [_table(data, protocols.HEADLINE, "bpb"), _table(data, "answers", "accuracy")]
    return "\n\n".join(filter(None, tables)) or "nothing has been evaluated yet"


def _table(data: Gathered, protocol: str, value: str) -> str:
    """Table of groups, each with its window and extensions below it, best first."""
    points = data.points[data.points.protocol == protocol]
    points = points[points.groupby("group")[value].transform("count") > 0]
    if points.empty:
        return ""
    means = means_over_seeds(points, value)
    words = curves.VALUES[value]
    counts = points.groupby("name", sort=False).counts.last().unique()
    lines = [
        f"{words}, {protocol}: {protocols.find(protocol).title}; means over seeds",
        f"  {'; '.join(counts[:3])}",
        " " * NAME + "".join(f"{length:>9,}" for length in means.columns),
    ]
    for group in points.group.unique():
        rows = means.loc[group].sort_values(means.columns[-1], ascending=value == "bpb")
        extensions = [method for method in rows.index if method not in WORDS]
        for method in (*(m for m in WORDS if m in rows.index), *extensions):
            name = WORDS.get(method, f"  + {method}") or group
            numbers = (f"{'-' if pd.isna(v) else f'{v:.3f}':>9}" for v in rows.loc[method])
            if len(name) > NAME:  # not cut, as two might then look alike
                lines.append(name)
                name = ""
            lines.append(f"{name:<{NAME}}" + "".join(numbers))
    if value != "bpb":
        return "\n".join(lines)
    plain = points[points.method == "none"]
    for row in figures.yardsticks(data, plain).itertuples():
        numbers = f"{row.bpb:>9.3f}" * len(means.columns)
        lines.append(f"{row.name:<{NAME}}{numbers}" if row.bpb is not None else "")
    unfinished = learning.not_done(data)
    if unfinished:
        lines.append(
            f"not done: {', '.join(unfinished)}: the held-out loss still falls more than "
            f"{learning.FASTER:g} times as fast as that of the best group"
        )
    return "\n".join(lines)


WORDS = {"none": "", "window": "  in a window of L"}  # baselines, not extensions


def means_over_seeds(points: Frame, value: str = "bpb") -> Frame:
    """Mean of a value by group and method (rows) and length; NaN where a seed is not finite."""
    by_length = points.groupby(["group", "method", "length"])[value]
    return by_length.mean(skipna=False).unstack("length")
