"""Print the curves of a run as text."""

import math
import textwrap
from collections.abc import Iterable, Sequence

from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, paired
from posenc_jax.evaluation.sums import is_baseline, label
from posenc_jax.terminal import counted

WIDTH, NAME, LINE = 11, 20, 80
PAIR = 2 * WIDTH - 4  # bits | nats


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
                blocks.append(_block(protocol.name, chosen))
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


def _block(protocol: str, chosen) -> str:
    lengths = sorted({row["length"] for row, _ in chosen})
    first = chosen[0][0]
    best = {n: _best([pair for pair in chosen if pair[0]["length"] == n]) for n in lengths}
    lines = _prose(
        f"{_title(protocols.find(protocol), first)}; {counts(chosen[-1][0])}",
        "perplexity, and gain over null in bits per byte | nats per token; * best, and "
        f"significantly better than the next (95%, {FEWEST_DOCUMENTS} documents or more)",
    )
    names = dict.fromkeys(label(row) for row, _ in chosen)
    series = {
        name: {row["length"]: row for row, _ in chosen if label(row) == name} for name in names
    }
    for some in _across(lengths, PAIR):
        lines.append(" " * NAME + "".join(f"{n:>{PAIR}}" for n in some))
        for name, by_length in series.items():
            lines += _row(name, "".join(_value(by_length.get(n), best[n]) for n in some))
            gains = "".join(_gain(by_length.get(n)) for n in some)
            if gains.strip():
                lines.append(" " * NAME + gains)
    return "\n".join(line.rstrip() for line in lines)


def _prose(*sentences: str) -> list[str]:
    """Wrap sentences into lines without breaking names."""
    wrapper = textwrap.TextWrapper(LINE, break_long_words=False, break_on_hyphens=False)
    return [line for sentence in sentences for line in wrapper.wrap(sentence)]


def _across(columns: Sequence, width: int) -> list[Sequence]:
    """Split columns into groups that fit a line beside the names."""
    most = max(1, (LINE - NAME) // width)
    return [columns[i : i + most] for i in range(0, len(columns), most)]


def _row(name: str, values: str) -> list[str]:
    """One row; a long name gets a line of its own."""
    if len(name) < NAME:
        return [name.ljust(NAME) + values]
    return [name, " " * NAME + values]


def _title(protocol: Protocol, row: dict) -> str:
    """First line of a block."""
    return (
        f"{row['run']}, step {row['step']}, {row['evaluation']}: {protocol.name}, {protocol.title}"
    )


def _answers(protocol: Protocol, rows: Sequence[dict]) -> str:
    """Accuracy against length above bits per answer, with the ceiling and the chance level."""
    lengths = sorted({row["length"] for row in rows})
    last = max(rows, key=lambda row: row["length"])
    lines = _prose(
        f"{_title(protocol, last)}; {counts(last)}",
        "share of answers that are right, above bits per answer",
    )
    ceilings = {row["length"]: row["ceiling"] for row in rows if row["ceiling"] is not None}
    orderless = {row["length"]: row["orderless"] for row in rows if row["orderless"] is not None}
    for some in _across(lengths, WIDTH):
        lines.append(" " * NAME + "".join(f"{n:>{WIDTH}}" for n in some))
        if ceilings:
            lines += _row("ceiling", _shares(ceilings.get(n) for n in some))
        if orderless:
            lines += _row("no order", _shares(orderless.get(n) for n in some))
        for name in dict.fromkeys(map(label, rows)):
            by_length = {row["length"]: row for row in rows if label(row) == name}
            lines += _row(name, _shares(_field(by_length.get(n), "accuracy") for n in some))
            lines.append(" " * NAME + _shares(_bits(by_length.get(n)) for n in some))
    if last["chance"] is not None:
        lines.append(f"a guess is right in {last['chance']:.3f}")
    return "\n".join(line.rstrip() for line in lines)


def _parts(protocol: Protocol, rows: Sequence[dict]) -> list[str]:
    """Blocks with parts as columns, one per length."""
    blocks = []
    for length in sorted({row["length"] for row in rows}):
        here = [row for row in rows if row["length"] == length]
        parts = list(dict.fromkeys(row["part"] for row in here))
        wide = max(WIDTH, *(len(part) + 2 for part in parts))
        accuracy = protocol.value == "accuracy"
        shown = "share of answers that are right" if accuracy else "bits per token"
        lines = _prose(f"{_title(protocol, here[0])}; windows of {length} tokens", shown)
        for some in _across(parts, wide):
            lines.append(" " * NAME + "".join(f"{part:>{wide}}" for part in some))
            for name in dict.fromkeys(map(label, here)):
                by_part = {row["part"]: row for row in here if label(row) == name}
                values = [
                    _field(by_part.get(part), "accuracy") if accuracy else _bits(by_part.get(part))
                    for part in some
                ]
                lines += _row(name, _shares(values, wide))
        blocks.append("\n".join(line.rstrip() for line in lines))
    return blocks


def _shortest(protocol: Protocol, rows: Sequence[dict]) -> str:
    lengths = [f"{label(row)} {row['length']}" for row in rows]
    return "\n".join(_prose(_title(protocol, rows[0]), ", ".join(lengths)))


def _field(row: dict | None, field: str) -> float | None:
    return None if row is None else row[field]


def _bits(row: dict | None) -> float | None:
    return None if row is None or row["nll"] is None else row["nll"] / math.log(2)


def _shares(values: Iterable[float | None], wide: int = WIDTH) -> str:
    return "".join(f"{'-' if v is None else f'{v:.3f}':>{wide}}" for v in values)


def _value(row: dict | None, best: list[str]) -> str:
    if row is None:
        return f"{'-':>{PAIR}}"
    if row["ppl"] is None:
        return f"{row['flag']:>{PAIR}}"
    mark = "*" if label(row) in best and not is_baseline(row) else ""
    return f"{mark}{row['ppl']:.3f}".rjust(PAIR)


def _gain(row: dict | None) -> str:
    if row is None or row["null_nll"] is None or row["length"] <= row["train_length"]:
        return " " * PAIR
    nats = f"{row['null_nll'] - row['nll']:+.3f}"
    bits = "" if row["gain_bpb"] is None else f"{row['gain_bpb']:+.3f} | "
    return f"{bits}{nats}".rjust(PAIR)


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
