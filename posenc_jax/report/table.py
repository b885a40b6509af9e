"""The table of a report as text."""

import pandas as pd

from posenc_jax.evaluation import protocols
from posenc_jax.report.gather import Frame, Gathered

NAME = 24


def table(data: Gathered, protocol: str = protocols.HEADLINE) -> str:
    """Bits per byte of groups by length; below a group its window and extensions, best first."""
    points = data.points[data.points.protocol == protocol]
    if points.empty:
        return "nothing has been evaluated yet"
    means = means_over_seeds(points)
    counts = points.groupby("name", sort=False).counts.last().unique()
    lines = [
        f"bits per byte, {protocol}: {protocols.find(protocol).title}; means over seeds",
        f"  {'; '.join(counts[:3])}",
        " " * NAME + "".join(f"{length:>9,}" for length in means.columns),
    ]
    for group in points.group.unique():
        rows = means.loc[group].sort_values(means.columns[-1])
        extensions = [method for method in rows.index if method not in WORDS]
        for method in (*(m for m in WORDS if m in rows.index), *extensions):
            name = WORDS.get(method, f"  + {method}") or group
            numbers = (f"{'-' if pd.isna(v) else f'{v:.3f}':>9}" for v in rows.loc[method])
            if len(name) > NAME:  # none is cut: two might look alike
                lines.append(name)
                name = ""
            lines.append(f"{name:<{NAME}}" + "".join(numbers))
    return "\n".join(lines)


WORDS = {"none": "", "window": "  in a window of L"}  # the baseline is no extension


def means_over_seeds(points: Frame) -> Frame:
    """Bits per byte: group and method by length; NaN where a seed is not finite."""
    by_length = points.groupby(["group", "method", "length"]).bpb
    return by_length.mean(skipna=False).unstack("length")
