"""The tables of a report as plain text, Markdown and LaTeX."""

from collections.abc import Mapping
from math import isnan
from pathlib import Path

import numpy as np

from posenc_jax.display import NONE, Table, decimal, latex, markdown, text
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.plots import curves
from posenc_jax.report import answers, figures, learning
from posenc_jax.report.runs import Frame, ReportData


def table(data: ReportData) -> str:
    """Bits per byte and accuracy of groups by length, and their order beyond L."""
    blocks = []
    for protocol in (protocols.HEADLINE, "answers"):
        value = figures.value_of(protocol)
        points = data.points[data.points.protocol == protocol]
        points = points[points.groupby("group")[value].transform("count") > 0]
        if points.empty:
            continue
        blocks.append(text(_by_group(data, protocol, points, value)))
        if value == "bpb":
            blocks[-1] += _unfinished(data)
    if (ordered := answers.ordered(data)) is not None:
        rows, longest = ordered
        title = f"{longest:,} tokens, means over seeds"
        blocks.append(text(answers.table_of_order(rows)._replace(caption=title)))
    return "\n\n".join(blocks) or "nothing has been evaluated yet"


def _unfinished(data: ReportData) -> str:
    groups = [item.group for item in learning.groups_by_loss(data) if not item.done]
    if not groups:
        return ""
    return (
        f"\nnot done: {', '.join(groups)}: the held-out loss still falls more than "
        f"{learning.FASTER:g} times as fast as that of the best group"
    )


def _by_group(data: ReportData, protocol: str, points: Frame, value: str) -> Table:
    """Table of groups, each with its baselines and extensions below it, best first."""
    means = points.groupby(["group", "method", "length"])[value].mean(skipna=False).unstack()
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
            body.append([name, *map(decimal, rows.loc[method])])
    return Table(caption, ["", *(f"{length:,}" for length in means.columns)], body)


WORDS = {"none": ""} | {name: f"  {words}" for name, words in BASELINES.items()}


def write(data: ReportData, folder: Path) -> list[Path]:
    """Write OUT/tables.md and OUT/tables.tex if anything has been evaluated."""
    tables = every(data)
    paths = []
    for name, form in (("tables.md", markdown), ("tables.tex", latex)):
        path = folder / name
        path.unlink(missing_ok=True)  # left by an earlier report
        if tables:
            path.write_text("\n\n".join(map(form, tables)) + "\n", encoding="utf-8")
            paths.append(path)
    return paths


def every(data: ReportData) -> list[Table]:
    """One table per protocol: groups and methods by length or by part, best first."""
    tables = []
    results = answers.collect(data)
    for name in data.points.protocol.unique():
        protocol = protocols.find(name)
        points = data.points[data.points.protocol == name]
        value = figures.value_of(name)
        if protocol.by_part and protocol.value != "accuracy" or protocol.needs:
            continue
        if protocol.by_part:
            points = points[points.length == points.length.max()]
        if points[value].notna().any():
            names = results.names if results is not None and value == "accuracy" else {}
            tables.append(_table_of_protocol(names, protocol, points, value))
    return tables


def _table_of_protocol(
    names: Mapping[str, str], protocol: Protocol, points: Frame, value: str
) -> Table:
    columns = "part" if protocol.by_part else "length"
    seeds = points.groupby(["group", "method", columns])[value]
    mean = seeds.mean(skipna=False).unstack(columns)
    if protocol.by_part:
        mean = mean[sorted(mean.columns, key=_numbers)]
    mean = mean.sort_values(mean.columns[-1], ascending=value == "bpb")
    spread = seeds.std(skipna=False).unstack(columns)
    pairs = figures.distinct(
        {pair: tuple(row) for pair, row in zip(mean.index, mean.to_numpy(), strict=True)}
    )
    mean = mean[[pair in pairs for pair in mean.index]]
    unknown = answers.parts_with_few_answers(points) if protocol.by_part else set()
    mean = mean.assign(**dict.fromkeys(unknown, np.nan))
    counts = points.groupby(["group", "method"]).seed.nunique()[mean.index]
    lines = [
        (
            figures.with_method(names.get(group, group), method),
            mean.loc[group, method],
            spread.loc[group, method],
            str(counts[group, method]),
        )
        for group, method in mean.index
    ]
    if value == "accuracy":
        of_all = points.groupby(columns)
        if not protocol.by_part:
            lines.insert(0, ("ceiling", of_all.ceiling.mean(), {}, NONE))
        if points.orderless.notna().any():
            lines.append(("no order", of_all.orderless.mean(), {}, NONE))
    few, most = int(counts.min()), int(counts.max())
    rows = [
        [name, *(_cell(means[at], spreads.get(at)) for at in mean), *[seeds] * (few < most)]
        for name, means, spreads, seeds in lines
    ]
    over = f"{most}" if few == most else f"{few} to {most}"
    of_seeds = f"mean and standard deviation over {over} seeds" if most > 1 else "one seed"
    unit = "bits per byte" if value == "bpb" else "accuracy"
    left_out = f" {NONE}: fewer than {answers.FEWEST_ANSWERS} answers." if unknown else ""
    caption = f"{protocol.name}: {protocol.title}; {unit}, {of_seeds}.{left_out}"
    head = ["", *(str(at) if protocol.by_part else f"{at:,}" for at in mean)]
    return Table(caption, head + ["seeds"] * (few < most), rows)


def _numbers(part: str) -> list[float]:
    """Numbers of a part: `65-128`, `0.1-0.2`, `3-8`; words come first."""
    try:
        return [float(word) for word in part.split("-")]
    except ValueError:
        return [-1.0]


def _cell(mean: float, spread: float | None) -> str:
    known = spread is not None and not isnan(mean) and not isnan(spread)
    return decimal(mean) + (f" ±{decimal(spread)}" if known else "")
