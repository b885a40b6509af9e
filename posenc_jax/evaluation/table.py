"""Print the curves of a run as text."""

import math
from collections.abc import Callable, Sequence

from posenc_jax.display import NONE, Table, decimal, prose, text
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import BASELINES, FRESH, label
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, Units
from posenc_jax.runtime.terminal import counted

Shown = Callable[[dict | None], str]  # a row in a table; None: the method lacks it


def counts(row: dict) -> str:
    """Describe the targets behind a number."""
    windows = f"{counted(row['windows'], 'window')} of " if row.get("windows") else ""
    return f"{counted(row['tokens'], 'target')} in {windows}{over(row)}"


def over(row: dict) -> Units:
    """What the intervals of a row are over."""
    return Units(row["units"], row["unit"])


def table(rows: Sequence[dict], only: str = "") -> str:
    """Tables of all protocols in the rows of an evaluation, or of one, with lengths or parts as
    columns."""
    blocks: list[str] = []
    for step in dict.fromkeys(row["step"] for row in rows):
        for protocol in protocols.shown():
            wanted = (protocol.name, step)
            chosen = [row for row in rows if (row["protocol"], row["step"]) == wanted]
            if chosen and only in ("", protocol.name):
                blocks += _blocks(protocol, chosen)
    return "\n\n".join(blocks)


def _blocks(protocol: Protocol, rows: Sequence[dict]) -> list[str]:
    """The tables of a protocol and step."""
    longest = max(rows, key=lambda row: row["length"])
    run = f"{longest['run']}, step {longest['step']}, {longest['evaluation']}"
    title = f"{run}: {protocol.name}, {protocol.title}"
    lengths = sorted({row["length"] for row in rows})
    if protocol.by_part:
        by_length = [[row for row in rows if row["length"] == length] for length in lengths]
        return [_parts(protocol, title, here) for here in by_length]
    if protocol.needs:
        shortest = (f"{label(row)} {row['length']}" for row in rows)
        return ["\n".join(prose(title, ", ".join(shortest)))]
    if protocol.by_place:
        return []
    title += f"; {counts(longest)}"
    if protocol.value == "accuracy":
        return [_answers(title, rows, lengths)]
    return [_losses(title, rows, lengths), *_gains(protocol, rows, lengths[-1])]


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


def _by_method(
    caption: str, rows: Sequence[dict], column: str, columns: Sequence, shown: Sequence[Shown]
) -> Table:
    """A line per method and shown value, with the values of a column of the rows as columns."""
    body = []
    for name in dict.fromkeys(map(label, rows)):
        own = {row[column]: row for row in rows if label(row) == name}
        for first, value in zip((name, ""), shown, strict=False):
            line = [value(own.get(wanted)) for wanted in columns]
            if first or any(line):
                body.append([first, *line])
    return Table(caption, ["", *map(str, columns)], body)


def _losses(title: str, rows: Sequence[dict], lengths: Sequence[int]) -> str:
    """Perplexity against length, above the gain over the null."""

    def perplexity(row: dict | None) -> str:
        if row is None:
            return NONE
        return row["flag"] if row["ppl"] is None else decimal(row["ppl"])

    caption = f"{title}\nperplexity"
    if gains := "".join(map(_gain, rows)):
        bits = "bits per byte | " if "|" in gains else ""
        caption += f", and gain over null in {bits}nats per token"
    return text(_by_method(caption, rows, "length", lengths, (perplexity, _gain)))


def _gain(row: dict | None) -> str:
    if row is None or row["null_nll"] is None or row["length"] <= row["train_length"]:
        return ""
    if label(row) == FRESH:
        return ""
    bits = "" if row["gain_bpb"] is None else f"{row['gain_bpb']:+.3f} | "
    return f"{bits}{row['null_nll'] - row['nll']:+.3f}"


def _gains(protocol: Protocol, rows: Sequence[dict], longest: int) -> list[str]:
    """Gain of every method over the baselines at the longest length; empty within L."""
    last = [row for row in rows if row["length"] == longest]
    known = [name for name in BASELINES if any(row[f"over_{name}"] is not None for row in last)]
    if not known:
        return []
    caption = (
        f"{protocol.name}, {longest} tokens: gain over each baseline in nats per token, with 95% "
        f"intervals over {over(last[0])}; * significant ({FEWEST_DOCUMENTS} documents or more)"
    )
    body = [[label(row), *(_over(row, name) for name in known)] for row in last]
    return [text(Table(caption, ["", *known], body))]


def _over(row: dict, name: str) -> str:
    gain, low, high = (row[f"over_{name}{end}"] for end in ("", "_low", "_high"))
    if gain is None:
        return NONE
    if low is None:  # a single unit
        return f"{gain:+.3f}"
    significant = (low > 0 or high < 0) and over(row).enough
    return f"{gain:+.3f}{'*' if significant else ''} [{low:+.3f}, {high:+.3f}]"


def _answers(title: str, rows: Sequence[dict], lengths: Sequence[int]) -> str:
    """Accuracy against length above bits per answer, with the ceiling and the chance level."""
    chance = rows[-1]["chance"]
    guess = "" if chance is None else f"\na guess is right in {chance:.3f}"
    caption = f"{title}\nshare of answers that are right, above bits per answer{guess}"
    table = _by_method(caption, rows, "length", lengths, (_accuracy, _bits))
    limits = []
    for name, column in (("ceiling", "ceiling"), ("no order", "orderless")):
        known = {row["length"]: row[column] for row in rows if row[column] is not None}
        if known:
            limits.append([name, *(decimal(known.get(length)) for length in lengths)])
    return text(table._replace(rows=[*limits, *table.rows]))


def _parts(protocol: Protocol, title: str, rows: Sequence[dict]) -> str:
    """The rows of one length with parts as columns, or as the protocol shows them."""
    accuracy = protocol.value == "accuracy"
    table = protocol.table(rows) or _by_method(
        "share of answers that are right" if accuracy else "bits per token",
        rows,
        "part",
        list(dict.fromkeys(row["part"] for row in rows)),
        (_accuracy if accuracy else _bits,),
    )
    caption = f"{title}; windows of {rows[0]['length']} tokens\n{table.caption}"
    return text(table._replace(caption=caption))


def _accuracy(row: dict | None) -> str:
    return decimal(None if row is None else row["accuracy"])


def _bits(row: dict | None) -> str:
    return decimal(None if row is None or row["nll"] is None else row["nll"] / math.log(2))
