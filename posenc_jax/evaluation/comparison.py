"""Differences between two evaluated curves over the same targets, paired by document."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posenc_jax.errors import DataError
from posenc_jax.evaluation import records, selection
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, paired
from posenc_jax.evaluation.table import label
from posenc_jax.typeset import FORMS, Table

NAME = 28


class Difference(NamedTuple):
    """Of two curves at one length, in words; empty where there is no number."""

    name: str  # protocol, length and part
    nats: str
    mark: str  # * where the interval excludes zero
    interval: str
    bits: str
    documents: str


def compare(
    a: str, b: str, protocols: Sequence[str], evaluation: str = "", form: str = "text"
) -> str:
    """A row per protocol, common length and part of two selections, whose method is none if
    omitted."""
    rows = differences(a, b, protocols, evaluation)
    head = [
        f"nats per token of {a} less those of {b}, with 95% intervals over documents;",
        f"* clear: the interval excludes zero, over {FEWEST_DOCUMENTS} documents or more",
    ]
    if form == "text":
        units = f"{'':<{NAME}}{'nats':>8}   {'interval':<20}{'bits/byte':>10}{'documents':>11}"
        return "\n".join([*head, units, *map(_line, rows)])
    cells = [[r.name, r.nats + r.mark, r.interval, r.bits, r.documents] for r in rows]
    return FORMS[form](
        Table(" ".join(head) + ".", ["", "nats", "95%", "bits/byte", "documents"], cells)
    )


def differences(a: str, b: str, protocols: Sequence[str], evaluation: str = "") -> list[Difference]:
    first, second = curve(a, evaluation), curve(b, evaluation)
    rows = []
    refused = set()
    for protocol in protocols:
        for one, other in _pairs(first, second, protocol):
            same = all(one.facts[n] == other.facts[n] for n in ("token_hash", "stride", "last"))
            if same and np.array_equal(one.sums.tokens, other.sums.tokens):
                rows.append(_difference(one, other))
            else:
                refused.add(protocol)
    if refused:
        raise DataError(
            f"{a} and {b} were evaluated on different targets ({', '.join(sorted(refused))}): "
            "evaluate both with the same data, multiples, documents, windows, stride and last"
        )
    if not rows:
        raise DataError(f"{a} and {b} have no protocol and length in common")
    return rows


def curve(text: str, evaluation: str = "") -> list[Measured]:
    """The cells of the one curve that a text names."""
    run, methods, length = selection.parse(text)
    at = "" if length is None else f"@{length}"
    cells = selection.cells(text if methods else f"{run}@none{at}", evaluation)
    names = sorted({label(cell.facts) for cell in cells})
    if len(names) > 1:
        raise DataError(f"{text} names several curves: {', '.join(names)}; name one of them")
    return cells


def _pairs(first: Sequence[Measured], second: Sequence[Measured], protocol: str):
    """Cells of equal length and part; if each has a single length, those of the two lengths."""
    one, other = (_places(cells, protocol) for cells in (first, second))
    lengths = [{length for length, _ in places} for places in (one, other)]
    if len(lengths[0]) == len(lengths[1]) == 1:
        (length,), (against,) = lengths
        return [(one[length, p], other[against, p]) for _, p in one if (against, p) in other]
    return [(one[place], other[place]) for place in one if place in other]


def _places(cells: Sequence[Measured], protocol: str) -> dict[tuple[int, str], Measured]:
    own = [cell for cell in cells if cell.facts["protocol"] == protocol]
    own.sort(key=lambda cell: cell.facts["length"])  # the parts of a length stay in their order
    return {(cell.facts["length"], cell.facts["part"] or ""): cell for cell in own}


def _difference(one: Measured, other: Measured) -> Difference:
    name = " ".join(str(one.facts[n]) for n in ("protocol", "length", "part") if one.facts[n])
    if one.facts["length"] != other.facts["length"]:
        name += f" against {other.facts['length']}"
    difference = paired(one.sums.nats, other.sums.nats, one.sums.tokens)
    if not np.isfinite(difference.mean):
        return Difference(name, "not finite", "", "", "", "")
    per_byte = records.per_byte_of(one.sums)
    return Difference(
        name,
        f"{difference.mean:+.4f}",
        "*" if difference.clear else "",
        f"[{difference.low:+.4f}, {difference.high:+.4f}]",
        f"{difference.mean * per_byte:+.4f}" if per_byte else "",
        f"{difference.documents:,}",
    )


def _line(row: Difference) -> str:
    if not row.interval:
        return f"{row.name:<{NAME}} {row.nats}"
    begin = f"{row.name:<{NAME}}{row.nats:>8} {row.mark:<1} {row.interval:<20}"
    return f"{begin}{row.bits:>10}{row.documents:>11}"
