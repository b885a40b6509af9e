"""Differences between two evaluated curves over the same targets, paired by document."""

from collections.abc import Sequence

import numpy as np

from posenc_jax.errors import DataError
from posenc_jax.evaluation import records, selection
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, paired
from posenc_jax.evaluation.table import label

NAME = 28


def compare(a: str, b: str, protocols: Sequence[str], evaluation: str = "") -> str:
    """A line per protocol and common length of two selections, whose method is none if omitted."""
    first, second = curve(a, evaluation), curve(b, evaluation)
    lines = []
    refused = set()
    for protocol in protocols:
        for one, other in _pairs(first, second, protocol):
            same = all(one.facts[n] == other.facts[n] for n in ("token_hash", "stride", "last"))
            if same and np.array_equal(one.sums.tokens, other.sums.tokens):
                lines.append(_line(one, other))
            else:
                refused.add(protocol)
    if refused:
        raise DataError(
            f"{a} and {b} were evaluated on different targets ({', '.join(sorted(refused))}): "
            "evaluate both with the same data, multiples, documents, windows, stride and last"
        )
    if not lines:
        raise DataError(f"{a} and {b} have no protocol and length in common")
    head = [
        f"nats per token of {a} less those of {b}, with 95% intervals over documents;",
        f"* clear: the interval excludes zero, over {FEWEST_DOCUMENTS} documents or more",
    ]
    units = f"{'':<{NAME}}{'nats':>8}   {'interval':<20}{'bits/byte':>10}{'documents':>11}"
    return "\n".join([*head, units, *lines])


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
    """Cells of equal length; if each has a single length, those two."""
    one, other = (
        {c.facts["length"]: c for c in cells if c.facts["protocol"] == protocol}
        for cells in (first, second)
    )
    if len(one) == len(other) == 1:
        return [(*one.values(), *other.values())]
    return [(one[n], other[n]) for n in sorted(one.keys() & other.keys())]


def _line(one: Measured, other: Measured) -> str:
    name = f"{one.facts['protocol']} {one.facts['length']}"
    if one.facts["length"] != other.facts["length"]:
        name += f" against {other.facts['length']}"
    difference = paired(one.sums.nats, other.sums.nats, one.sums.tokens)
    if not np.isfinite(difference.mean):
        return f"{name:<{NAME}} not finite"
    mark = "*" if difference.clear else " "
    per_byte = records.per_byte_of(one.sums)
    bits = f"{difference.mean * per_byte:+.4f}" if per_byte else ""
    interval = f"[{difference.low:+.4f}, {difference.high:+.4f}]"
    return (
        f"{name:<{NAME}}{difference.mean:+8.4f} {mark} {interval:<20}{bits:>10}"
        f"{difference.documents:>11,}"
    )
