"""The table of a report as plain text."""

import pandas as pd

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.sums import BASELINES
from posenc_jax.plots import curves
from posenc_jax.report import figures, learning
from posenc_jax.report.gather import Frame, Gathered
from posenc_jax.typeset import Table, text


def table(data: Gathered) -> str:
    """Bits per byte and accuracy of groups by length."""
    tables = [_table(data, protocols.HEADLINE, "bpb"), _table(data, "answers", "accuracy")]
    return "\n\n".join(filter(None, tables)) or "nothing has been evaluated yet"


def _table(data: Gathered, protocol: str, value: str) -> str:
    """Table of groups, each with its baselines and extensions below it, best first."""
    points = data.points[data.points.protocol == protocol]
    points = points[points.groupby("group")[value].transform("count") > 0]
    if points.empty:
        return ""
    means = means_over_seeds(points, value)
    words = curves.VALUES[value]
    counts = points.groupby("name", sort=False).counts.last().unique()
    caption = (
        f"{words}, {protocol}: {protocols.find(protocol).title}; means over seeds\n"
        f"{'; '.join(counts[:3])}"
    )
    body = []
    for group in points.group.unique():
        rows = means.loc[group].sort_values(means.columns[-1], ascending=value == "bpb")
        extensions = [method for method in rows.index if method not in WORDS]
        for method in (*(m for m in WORDS if m in rows.index), *extensions):
            name = WORDS.get(method, f"  + {method}") or group
            body.append([name, *("-" if pd.isna(v) else f"{v:.3f}" for v in rows.loc[method])])
    unfinished: list[str] = []
    if value == "bpb":
        unfinished = learning.not_done(data)
        plain = points[points.method == "none"]
        grams = (row for row in figures.yardsticks(data, plain).itertuples() if row.bpb is not None)
        body += [[row.name, *[f"{row.bpb:.3f}"] * len(means.columns)] for row in grams]
    head = ["", *(f"{length:,}" for length in means.columns)]
    lines = [text(Table(caption, head, body))]
    if unfinished:
        lines.append(
            f"not done: {', '.join(unfinished)}: the held-out loss still falls more than "
            f"{learning.FASTER:g} times as fast as that of the best group"
        )
    return "\n".join(lines)


WORDS = {"none": ""} | {name: f"  {words}" for name, words in BASELINES.items()}


def means_over_seeds(points: Frame, value: str = "bpb") -> Frame:
    """Mean of a value by group and method (rows) and length; NaN where a seed is not finite."""
    by_length = points.groupby(["group", "method", "length"])[value]
    return by_length.mean(skipna=False).unstack("length")
