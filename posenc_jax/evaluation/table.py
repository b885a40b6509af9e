"""Print the curves of a run as text."""

import math
from collections.abc import Sequence

from posenc_jax.display import Table, prose, text
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.cells import BASELINES, FRESH, is_baseline, label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, paired
from posenc_jax.runtime.terminal import counted


def counts(row: dict) -> str:
    """Describe the targets behind a number; files of one package count as one document."""
    windows = f"{counted(row['windows'], 'window')} of " if row.get("windows") else ""
    targets = counted(row["tokens"], "target")
    return f"{targets} in {windows}{counted(row['documents'], 'document')} (or packages)"


def table(cells: Sequence[Measured]) -> str:
    """Tables of all protocols in an evaluation, with lengths or parts as columns."""
    rows = records.rows(cells)
    blocks = []
    for step in dict.fromkeys(row["step"] for row in rows):
        for protocol in protocols.shown():
            chosen = [
                (row, cell)
                for row, cell in zip(rows, cells, strict=True)
                if row["protocol"] == protocol.name and row["step"] == step
            ]
            if chosen and protocol.value == "accuracy" and not protocol.by_part:
                blocks.append(_answers(protocol, [row for row, _ in chosen]))
            elif chosen and protocol.by_part:
                blocks += _parts(protocol, [row for row, _ in chosen])
            elif chosen and protocol.needs:
                blocks.append(_shortest(protocol, [row for row, _ in chosen]))
            elif chosen and not protocol.by_place:
                blocks += [_block(protocol, chosen), *_gains(protocol, [row for row, _ in chosen])]
    return "\n\n".join(blocks)


def without_null(rows: Sequence[dict]) -> str | None:
    """Name the protocols that lack a null, with the reason; None if there are none."""
    lacking = {
        row["protocol"]
        for row in rows
        if row["length"] > row["train_length"] and row["nll"] and row["null_nll"] is None
        if row["protocol"] in protocols.against_length()
        if protocols.find(row["protocol"]).has_null
    }
    if not lacking:
        return None
    return (
        f"no null and no gain for {', '.join(sorted(lacking))}: they need the trained length "
        "(1 in multiples)"
    )


def _block(protocol: Protocol, chosen: Sequence[tuple[dict, Measured]]) -> str:
    """Perplexity against length, above the gain over the null."""
    rows = [row for row, _ in chosen]
    lengths = sorted({row["length"] for row in rows})
    best = {n: _best([pair for pair in chosen if pair[0]["length"] == n]) for n in lengths}
    caption = (
        f"{_title(protocol, rows[0])}; {counts(rows[-1])}\nperplexity, and gain over null in bits "
        "per byte | nats per token; * best, and significantly better than the next (95%, "
        f"{FEWEST_DOCUMENTS} documents or more)"
    )
    body = []
    for name in dict.fromkeys(map(label, rows)):
        by_length = {row["length"]: row for row in rows if label(row) == name}
        body.append([name, *(_value(by_length.get(n), best[n]) for n in lengths)])
        gains = [_gain(by_length.get(n)) for n in lengths]
        if any(gains) and name != FRESH:
            body.append(["", *gains])
    return text(Table(caption, ["", *map(str, lengths)], body))


def _gains(protocol: Protocol, rows: Sequence[dict]) -> list[str]:
    """Gain of every method over the baselines at the longest length; empty within L."""
    longest = max(row["length"] for row in rows)
    last = [row for row in rows if row["length"] == longest]
    known = [name for name in BASELINES if any(row[f"over_{name}"] is not None for row in last)]
    if not known:
        return []
    caption = (
        f"{protocol.name}, {longest} tokens: gain over each baseline in nats per token, with 95% "
        f"intervals over documents; * significant ({FEWEST_DOCUMENTS} documents or more)"
    )
    body = [[label(row), *(_over(row, name) for name in known)] for row in last]
    return [text(Table(caption, ["", *known], body))]


def _over(row: dict, name: str) -> str:
    gain, low, high = (row[f"over_{name}{end}"] for end in ("", "_low", "_high"))
    if gain is None:
        return "-"
    if low is None:  # a single document
        return f"{gain:+.3f}"
    significant = (low > 0 or high < 0) and row["documents"] >= FEWEST_DOCUMENTS
    return f"{gain:+.3f}{'*' if significant else ''} [{low:+.3f}, {high:+.3f}]"


def _title(protocol: Protocol, row: dict) -> str:
    """First line of a block."""
    return (
        f"{row['run']}, step {row['step']}, {row['evaluation']}: {protocol.name}, {protocol.title}"
    )


def _answers(protocol: Protocol, rows: Sequence[dict]) -> str:
    """Accuracy against length above bits per answer, with the ceiling and the chance level."""
    lengths = sorted({row["length"] for row in rows})
    last = max(rows, key=lambda row: row["length"])
    guess = "" if last["chance"] is None else f"\na guess is right in {last['chance']:.3f}"
    caption = (
        f"{_title(protocol, last)}; {counts(last)}\nshare of answers that are right, above bits "
        f"per answer{guess}"
    )
    body = []
    for name, column in (("ceiling", "ceiling"), ("no order", "orderless")):
        known = {row["length"]: row[column] for row in rows if row[column] is not None}
        if known:
            body.append([name, *(_share(known.get(n)) for n in lengths)])
    for name in dict.fromkeys(map(label, rows)):
        by_length = {row["length"]: row for row in rows if label(row) == name}
        body.append([name, *(_share(_field(by_length.get(n), "accuracy")) for n in lengths)])
        body.append(["", *(_share(_bits(by_length.get(n))) for n in lengths)])
    return text(Table(caption, ["", *map(str, lengths)], body))


def _parts(protocol: Protocol, rows: Sequence[dict]) -> list[str]:
    """Blocks with parts as columns, one per length."""
    blocks = []
    accuracy = protocol.value == "accuracy"
    shown = "share of answers that are right" if accuracy else "bits per token"
    for length in sorted({row["length"] for row in rows}):
        here = [row for row in rows if row["length"] == length]
        title = f"{_title(protocol, here[0])}; windows of {length} tokens"
        own = protocol.table(here)
        if own is not None:
            blocks.append(text(own._replace(caption=f"{title}\n{own.caption}")))
            continue
        parts = list(dict.fromkeys(row["part"] for row in here))
        body = []
        for name in dict.fromkeys(map(label, here)):
            own = {row["part"]: row for row in here if label(row) == name}
            values = (own.get(part) for part in parts)
            body.append(
                [name, *(_share(_field(v, "accuracy") if accuracy else _bits(v)) for v in values)]
            )
        blocks.append(text(Table(f"{title}\n{shown}", ["", *parts], body)))
    return blocks


def _shortest(protocol: Protocol, rows: Sequence[dict]) -> str:
    lengths = [f"{label(row)} {row['length']}" for row in rows]
    return "\n".join(prose(_title(protocol, rows[0]), ", ".join(lengths)))


def _field(row: dict | None, field: str) -> float | None:
    return None if row is None else row[field]


def _bits(row: dict | None) -> float | None:
    return None if row is None or row["nll"] is None else row["nll"] / math.log(2)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _value(row: dict | None, best: list[str]) -> str:
    if row is None:
        return "-"
    if row["ppl"] is None:
        return row["flag"]
    mark = "*" if label(row) in best and not is_baseline(row) else ""
    return f"{mark}{row['ppl']:.3f}"


def _gain(row: dict | None) -> str:
    if row is None or row["null_nll"] is None or row["length"] <= row["train_length"]:
        return ""
    bits = "" if row["gain_bpb"] is None else f"{row['gain_bpb']:+.3f} | "
    return f"{bits}{row['null_nll'] - row['nll']:+.3f}"


def _best(chosen) -> list[str]:
    """Labels of the lowest loss at a length, if it is significantly below the next."""
    finite = sorted(
        ((row, cell) for row, cell in chosen if row["nll"] is not None and not is_baseline(row)),
        key=lambda pair: pair[0]["nll"],
    )
    lowest = [label(row) for row, _ in finite if row["nll"] == finite[0][0]["nll"]]
    if len(lowest) == len(finite):
        return []
    cell, other = finite[0][1], finite[len(lowest)][1]  # several methods may be one cell
    return lowest if paired(cell.sums.nats, other.sums.nats, cell.sums.tokens).clear else []
