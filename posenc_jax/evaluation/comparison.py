"""Differences between two evaluated curves over the same targets, paired by document."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posenc_jax.errors import DataError
from posenc_jax.evaluation import records, selection
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, paired
from posenc_jax.evaluation.sums import label, targets_of
from posenc_jax.typeset import FORMS, Table


class Difference(NamedTuple):
    """A difference between two curves at one length, as text; empty fields are unknown."""

    name: str  # protocol, length and part
    nats: str
    mark: str  # * where the difference is clear
    interval: str
    bits: str
    documents: str


def compare(
    a: str, b: str, protocols: Sequence[str], evaluation: str = "", form: str = "text"
) -> str:
    """Compare two selections, one row per protocol, common length and part; the default method is
    none."""
    rows = differences(a, b, protocols, evaluation)
    caption = (
        f"nats per token of {a} minus those of {b}, with 95% intervals over documents; * clear: "
        f"the interval excludes zero, over {FEWEST_DOCUMENTS} documents or more."
    )
    cells = [[r.name, r.nats + r.mark, r.interval, r.bits, r.documents] for r in rows]
    return FORMS[form](Table(caption, ["", "nats", "95%", "bits/byte", "documents"], cells))


def differences(a: str, b: str, protocols: Sequence[str], evaluation: str = "") -> list[Difference]:
    first, second = curve(a, evaluation), curve(b, evaluation)
    rows = []
    unequal = set()
    for protocol in protocols:
        for one, other in _pairs(first, second, protocol):
            same = targets_of(one.facts) == targets_of(other.facts)
            if same and np.array_equal(one.sums.tokens, other.sums.tokens):
                rows.append(_difference(one, other))
            else:
                unequal.add(protocol)
    if unequal:
        raise DataError(
            f"{a} and {b} were evaluated on different targets ({', '.join(sorted(unequal))}): "
            "evaluate both with the same data, multiples, documents, windows, stride and last, or "
            "name another one by --protocol"
        )
    if not rows:
        raise DataError(f"{a} and {b} have no protocol and length in common")
    return rows


def curve(text: str, evaluation: str = "") -> list[Measured]:
    """Cells of the one curve that a selection names."""
    run, methods, length = selection.parse(text)
    suffix = "" if length is None else f"@{length}"
    cells = selection.cells(text if methods else f"{run}@none{suffix}", evaluation)
    names = sorted({label(cell.facts) for cell in cells})
    if len(names) > 1:
        raise DataError(f"{text} names several curves: {', '.join(names)}; name one of them")
    return cells


def _pairs(first: Sequence[Measured], second: Sequence[Measured], protocol: str):
    """Pairs of cells with equal part, and with equal length unless each curve has a single one."""
    one, other = (_by_length_and_part(cells, protocol) for cells in (first, second))
    lengths = [{length for length, _ in curve} for curve in (one, other)]
    if len(lengths[0]) == len(lengths[1]) == 1:
        (length,), (against,) = lengths
        return [(one[length, p], other[against, p]) for _, p in one if (against, p) in other]
    return [(one[key], other[key]) for key in one if key in other]


def _by_length_and_part(
    cells: Sequence[Measured], protocol: str
) -> dict[tuple[int, str], Measured]:
    chosen = [cell for cell in cells if cell.facts["protocol"] == protocol]
    chosen.sort(key=lambda cell: cell.facts["length"])  # stable: the order of parts stays
    return {(cell.facts["length"], cell.facts["part"] or ""): cell for cell in chosen}


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
