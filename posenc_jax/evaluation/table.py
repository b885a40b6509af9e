"""Print the curves of a run as text."""

from collections.abc import Sequence

from posenc_jax import composition
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, paired

WIDTH, NAME = 11, 20


def is_baseline(facts: dict) -> bool:
    """Whether a row is the window baseline: the run without extension in a window of L."""
    return bool(facts["window"]) and facts["extension"] == "none"


def label(facts: dict) -> str:
    """The method of a row, as tables, pictures, wandb and command lines name it."""
    name = facts["extension"]
    if is_baseline(facts):
        return "window"
    if facts["scale"] is not None:
        name = composition.with_scale(name, facts["scale"])
    return f"{name}:size={facts['window']}" if facts["window"] else name


def counts(row: dict) -> str:
    """Describe what a number was measured on."""
    windows = f"{row['windows']:,} windows of " if row.get("windows") else ""
    return f"{row['tokens']:,} targets in {windows}{row['documents']:,} documents"


def table(cells: Sequence[Measured]) -> str:
    """A table with lengths as columns and extensions as rows: perplexity, below it the gain."""
    rows = records.rows(cells)
    blocks = []
    for step in dict.fromkeys(row["step"] for row in rows):
        for protocol in protocols.against_length():
            chosen = [
                (row, cell)
                for row, cell in zip(rows, cells, strict=True)
                if row["protocol"] == protocol and row["step"] == step
            ]
            if chosen:
                blocks.append(_block(protocol, chosen))
    return "\n\n".join(blocks)


def without_null(rows: Sequence[dict]) -> str | None:
    """Explain which protocols have no null, or None."""
    lacking = {
        row["protocol"]
        for row in rows
        if row["length"] > row["train_length"] and row["nll"] and row["null_nll"] is None
    }
    if not lacking:
        return None
    return (
        f"no null and gain for {', '.join(sorted(lacking))}: they need the trained length "
        "(1 in multiples)"
    )


def _block(protocol: str, chosen) -> str:
    lengths = sorted({row["length"] for row, _ in chosen})
    first = chosen[0][0]
    best = {n: _best([pair for pair in chosen if pair[0]["length"] == n]) for n in lengths}
    lines = [
        f"{first['run']}, step {first['step']}, {first['evaluation']}: {protocol}, "
        f"{protocols.find(protocol).title}; {counts(chosen[-1][0])}",
        "perplexity, and gain over null in bits per byte | nats per token; * best, and clear of "
        f"the next one (95%, {FEWEST_DOCUMENTS} documents or more)",
        " " * NAME + "".join(f"{n:>{2 * WIDTH - 4}}" for n in lengths),
    ]
    for name in dict.fromkeys(label(row) for row, _ in chosen):
        series = {row["length"]: row for row, _ in chosen if label(row) == name}
        lines.append(name.ljust(NAME) + "".join(_value(series.get(n), best[n]) for n in lengths))
        gains = "".join(_gain(series.get(n)) for n in lengths)
        if gains.strip():
            lines.append(" " * NAME + gains)
    return "\n".join(line.rstrip() for line in lines)


def _value(row: dict | None, best: list[str]) -> str:
    if row is None:
        return f"{'-':>{2 * WIDTH - 4}}"
    if row["ppl"] is None:
        return f"{row['flag']:>{2 * WIDTH - 4}}"
    mark = "*" if label(row) in best and not is_baseline(row) else ""
    return f"{mark}{row['ppl']:.3f}".rjust(2 * WIDTH - 4)


def _gain(row: dict | None) -> str:
    if row is None or row["null_nll"] is None or row["length"] <= row["train_length"]:
        return " " * (2 * WIDTH - 4)
    nats = f"{row['null_nll'] - row['nll']:+.3f}"
    bits = "" if row["gain_bpb"] is None else f"{row['gain_bpb']:+.3f} | "
    return f"{bits}{nats}".rjust(2 * WIDTH - 4)


def _best(chosen) -> list[str]:
    """Labels of the lowest loss at a length, if it is clear of the next one."""
    finite = sorted(
        ((row, cell) for row, cell in chosen if row["nll"] is not None and not is_baseline(row)),
        key=lambda pair: pair[0]["nll"],
    )
    lowest = [label(row) for row, _ in finite if row["nll"] == finite[0][0]["nll"]]
    if len(lowest) == len(finite):
        return []
    cell, other = finite[0][1], finite[len(lowest)][1]  # one cell may have several names
    return lowest if paired(cell.sums.nats, other.sums.nats, cell.sums.tokens).clear else []
