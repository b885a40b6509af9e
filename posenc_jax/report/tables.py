"""Tables of a frame, and those of a report as plain text, Markdown and LaTeX."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from posenc_jax.display import NONE, Table, decimal, latex, markdown, rounded, text
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.plots import curves, style
from posenc_jax.report import answers, figures, learning
from posenc_jax.report.frames import Estimate, Over, Where, estimate, estimates
from posenc_jax.report.runs import Frame, ReportData

Named = str | Mapping[str, Where] | Sequence[tuple[str, Where]]


def with_interval(one: Estimate) -> str:
    """A mean, and half the width of its interval where it has one."""
    if one.low is None or one.high is None:
        return rounded(one.mean)
    interval = one.low, one.high
    return f"{rounded(one.mean, interval)} ± {rounded((one.high - one.low) / 2, interval)}"


def with_deviation(one: Estimate) -> str:
    """A mean and the standard deviation of two seeds or more."""
    several = len(one.values) > 1
    return decimal(one.mean) + (f" ±{decimal(one.values.std(ddof=1))}" if several else "")


def alone(one: Estimate) -> str:
    return decimal(one.mean)


def table(
    frame: Frame,
    rows: Named = "line",
    columns: Named = "length",
    value: str = "bpb",
    *,
    caption: str = "",
    corner: str = "",
    cell: Callable[[Estimate], str] = with_interval,
    missing: str = NONE,
    over: Over = estimate,
) -> Table:
    """Means over seeds of the rows of `posenc_jax.report.frame`.

    `rows` and `columns` are names of its columns, or selections by name: `{"found": {"protocol":
    "found", "part": "beyond", "value": "found"}}`. A selection may have a `value` and a `cell` of
    its own, and under `less` another selection that is subtracted, paired by seed. `over` is what
    a mean is over, where that is not seeds.
    """
    across, body = named(frame, columns), []
    for name, row in named(frame, rows):
        line = [name]
        found = estimates(frame, row, [column for _, column in across], value, over)
        for (_, column), one in zip(across, found, strict=True):
            form = {"cell": cell, **row, **column}["cell"]
            line.append(missing if one is None else form(one))
        body.append(line)
    return Table(caption, [corner, *(name for name, _ in across)], body)


def named(frame: Frame, names: Named) -> Sequence[tuple[str, Where]]:
    """Selections by name: those of the values of a column, or as they are given."""
    if isinstance(names, str):
        values = frame[names].unique().tolist()
        if frame[names].dtype.kind in "if":
            values = sorted(values)
        return [(f"{v:,}" if isinstance(v, int) else str(v), {names: v}) for v in values]
    return list(names.items()) if isinstance(names, Mapping) else names


def by_length(points: Frame, value: str, words: str) -> Table | None:
    """Every method and baseline of every group, best at the longest length first; None where all
    values are missing."""
    means = points.groupby(["group", "method", "length"], sort=False)[value].mean(skipna=False)
    known = means.dropna().reset_index().sort_values("length", kind="stable")
    if known.empty:
        return None
    last = known.groupby(["group", "method"], sort=False).last()
    sign = 1 if value == "bpb" else -1
    pairs = sorted(last.index, key=lambda p: (-last.length[p], sign * last[value][p]))
    rows = [(style.with_method(*pair), _of(*pair)) for pair in pairs]
    return table(points[points.length.isin(known.length)], rows, "length", value, corner=words)


def _of(group: str, method: str) -> Where:
    return {"group": group, "method": method}


def summary(data: ReportData) -> str:
    """Bits per byte and accuracy of groups by length, and their order beyond L, as text."""
    blocks = []
    for protocol in (protocols.HEADLINE, "answers"):
        value = figures.value_of(protocol)
        points = data.points[data.points.protocol == protocol]
        points = points[points.groupby("group")[value].transform("count") > 0]
        if points.empty:
            continue
        blocks.append(text(_by_group(protocol, points, value)))
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


def _by_group(protocol: str, points: Frame, value: str) -> Table:
    """Table of groups, each with its baselines and extensions below it, best first."""
    far = points[points.length == points.length.max()]
    means = far.groupby(["group", "method"])[value].mean(skipna=False)
    counts = points.groupby("name", sort=False).counts.last().unique()
    caption = (
        f"{curves.VALUES[value]}, {protocol}: {protocols.find(protocol).title}; means over seeds\n"
        f"{'; '.join(counts[:3])}"
    )
    rows = []
    for group in points.group.unique():
        best = means[group].sort_values(ascending=value == "bpb").index
        extensions = [method for method in best if method not in WORDS]
        for method in (*(m for m in WORDS if m in best), *extensions):
            name = WORDS.get(method, f"  + {method}") or group
            rows.append((name, _of(group, method)))
    made = table(points, rows, "length", value, caption=caption, cell=alone)
    at = sorted(points.length.unique())
    return made._replace(rows=[*made.rows, *_references(points, value, "length", at)])


def _references(points: Frame, value: str, columns: str, at: Sequence) -> list[list[str]]:
    """Accuracies that are no run's: of all that a window holds, and of a reader without order."""
    known = {"ceiling": "ceiling"} if columns == "length" else {}  # of a part it says nothing
    known = known | {"no order": "orderless"} if value == "accuracy" else {}
    means = {name: points.groupby(columns)[column].mean() for name, column in known.items()}
    return [[name, *map(decimal, row[at])] for name, row in means.items() if row.notna().any()]


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
    mean = points.groupby(["group", "method", columns])[value].mean(skipna=False).unstack(columns)
    if protocol.by_part:
        mean = mean[sorted(mean.columns, key=_numbers)]
    mean = mean.sort_values(mean.columns[-1], ascending=value == "bpb")
    kept = figures.distinct(
        {pair: tuple(row) for pair, row in zip(mean.index, mean.to_numpy(), strict=True)}
    )
    pairs = [pair for pair in mean.index if pair in kept]
    pairs.sort(key=lambda pair: pair[1] in BASELINES)
    unknown = answers.parts_with_few_answers(points) if protocol.by_part else set()
    counts = points.groupby(["group", "method"]).seed.nunique()[pairs]
    few, most = int(counts.min()), int(counts.max())
    rows = [(style.with_method(names.get(pair[0], pair[0]), pair[1]), _of(*pair)) for pair in pairs]
    across = [(str(at) if protocol.by_part else f"{at:,}", {columns: at}) for at in mean]
    made = table(points[~points[columns].isin(unknown)], rows, across, value, cell=with_deviation)
    lines = [
        [*line, *[str(count)] * (few < most)] for line, count in zip(made.rows, counts, strict=True)
    ]
    references = _references(points, value, columns, list(mean))
    lines += [[*line, *[NONE] * (few < most)] for line in references]
    apart = sum(method in BASELINES for _, method in pairs) + len(references)
    over = f"{most}" if few == most else f"{few} to {most}"
    of_seeds = f"mean and standard deviation over {over} seeds" if most > 1 else "one seed"
    unit = "bits per byte" if value == "bpb" else "accuracy"
    left_out = f" {NONE}: fewer than {answers.FEWEST_ANSWERS} answers." if unknown else ""
    name = protocol.name
    caption = f"{name}: {protocol.title}; {unit}, {of_seeds}.{left_out}"
    head, label = [*made.head, *["seeds"] * (few < most)], f"tab:{name.replace('_', '-')}"
    return Table(caption, head, lines, apart=apart, label=label)


def _numbers(part: str) -> list[float]:
    """Numbers of a part: `65-128`, `0.1-0.2`, `3-8`; words come first."""
    try:
        return [float(word) for word in part.split("-")]
    except ValueError:
        return [-1.0]
