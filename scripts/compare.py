"""python scripts/compare.py A B [--protocol=same_token,nonoverlap]

Differences between two evaluated curves over the very same targets, paired by document, with 95%
t-intervals over documents. A and B are RUN[@METHOD][@LENGTH]: a run's folder, then none (the
default), an extension, an extension:scale or window, then one length where not all of them are
meant:

  python scripts/compare.py runs/rope runs/alibi
  python scripts/compare.py runs/rope@yarn runs/rope@none
  python scripts/compare.py runs/rope@yarn:8@1024 runs/rope@none@128

The last one asks whether 1,024 tokens with YaRN are worth more than the last 128 of them without.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np  # noqa: E402

from posenc_jax import errors, terminal  # noqa: E402
from posenc_jax.evaluation import records  # noqa: E402
from posenc_jax.evaluation.protocols import shown  # noqa: E402
from posenc_jax.evaluation.records import Measured  # noqa: E402
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, paired  # noqa: E402
from posenc_jax.evaluation.table import apart, label  # noqa: E402
from posenc_jax.runs.workdir import Workdir  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    every = ",".join(protocol.name for protocol in shown())
    parser.add_argument("--protocol", default=every, help="default: all there are")
    parser.add_argument(
        "--evaluation", default="", help="by its name; default: that of held-out text"
    )
    options = parser.parse_args()
    return terminal.code_of(
        lambda: terminal.say(
            compare(options.a, options.b, options.protocol.split(","), options.evaluation)
        )
    )


def compare(a: str, b: str, protocols: list[str], evaluation: str = "") -> str:
    first, second = select(a, evaluation), select(b, evaluation)
    lines = [
        f"nats per token of {a} less those of {b}, with 95% intervals over documents; * clear: the "
        f"interval leaves zero out, over {FEWEST_DOCUMENTS} documents or more"
    ]
    refused = set()
    for protocol in protocols:
        for one, other in _pairs(first, second, protocol):
            same = all(one.facts[n] == other.facts[n] for n in ("token_hash", "stride", "last"))
            if not same or not np.array_equal(one.sums.tokens, other.sums.tokens):
                refused.add(protocol)
                continue
            lines.append(_line(one, other))
    if refused:
        raise errors.DataError(
            f"{a} and {b} were evaluated on different targets ({', '.join(sorted(refused))}): "
            "evaluate both with the same data, multiples, documents, windows, stride and last"
        )
    if len(lines) == 1:
        raise errors.DataError(f"{a} and {b} have no protocol and length in common")
    return "\n".join(lines)


def select(words: str, evaluation: str = "") -> list[Measured]:
    """The cells of the newest checkpoint that RUN[@METHOD][@LENGTH] names."""
    folder, rest = apart(words, "@")
    length = int(rest.pop()) if rest and rest[-1].isdigit() else None
    method = rest.pop(0) if rest else "none"
    Workdir(folder).checked_config()
    cells = records.of_evaluation(records.read(Path(folder) / "eval"), evaluation)
    last = max(cell.facts["step"] for cell in cells)
    cells = [cell for cell in cells if cell.facts["step"] == last]
    chosen = [
        cell
        for cell in cells
        if method in (label(cell.facts), label(cell.facts | {"scale": None}))
        and length in (None, cell.facts["length"])
    ]
    names = sorted({label(cell.facts) for cell in cells})
    scales = {label(cell.facts) for cell in chosen}
    if rest or not chosen or len(scales) > 1:
        lengths = sorted({cell.facts["length"] for cell in cells})
        raise errors.DataError(
            f"{words!r} does not name one curve of {folder}; it has {', '.join(names)} at "
            f"lengths {', '.join(map(str, lengths))}"
        )
    return chosen


def _pairs(first: list[Measured], second: list[Measured], protocol: str):
    """Cells of equal length; of two single lengths, those two."""
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
    found = paired(one.sums.nats, other.sums.nats, one.sums.tokens)
    if not np.isfinite(found.mean):
        return f"{name:<28} not finite"
    mark = "*" if found.clear else " "
    per_byte = records.per_byte_of(one.sums)
    return (
        f"{name:<28}{found.mean:+9.4f} {mark} [{found.low:+.4f}, {found.high:+.4f}]  "
        + (f"{found.mean * per_byte:+.4f} bits per byte, " if per_byte else "")
        + f"{found.documents} documents"
    )


if __name__ == "__main__":
    sys.exit(main())
