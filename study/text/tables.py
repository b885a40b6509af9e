"""Tables of the pages on text."""

import re
from collections.abc import Mapping
from functools import partial

from posenc_jax.display import Table
from study.cells import rows_of, short, table, where

L, FAR = 128, 1024
SWEEP, STEPS, FACTORS = (f"text/rows/{name}" for name in ("sweep", "steps", "factors"))
LINES = {  # sweep, encoding, method, protocol
    "Sandwich": (SWEEP, "sandwich", "none", "same_token"),
    "hybrid with NoPE": (SWEEP, "hybrid", "none", "same_token"),
    "T5": (SWEEP, "t5", "none", "same_token"),
    "Kerple, logarithm": (SWEEP, "kerple_log", "none", "same_token"),
    "forget gates": (SWEEP, "fox", "none", "same_token"),
    "FIRE": (SWEEP, "fire", "none", "same_token"),
    "RoPE": (SWEEP, "rope", "none", "same_token"),
    "RoPE + YaRN by 8": (SWEEP, "rope", "yarn:8", "same_token"),
    "RoPE + Self-Extend": (SWEEP, "rope", "self_extend", "same_token"),
    "ALiBi": (SWEEP, "alibi", "none", "same_token"),
    "ALiBi, cut text": (SWEEP, "alibi", "none", "nonoverlap"),
    "ALiBi, 2,400 steps": (STEPS, "alibi", "none", "same_token"),
    "ALiBi, 2,400 steps, cut text": (STEPS, "alibi", "none", "nonoverlap"),
    "RoPE + Self-Extend, 2,400 steps": (STEPS, "rope", "self_extend", "same_token"),
}
CHANGED = {
    "NoPE, a first token": ("nope", "bos"),
    "T5, a first token": ("t5", "bos"),
    "Kerple, logarithm, a first token": ("kerple_log", "bos"),
    "T5, biases per layer": ("t5", "per_layer"),
    "Kerple, logarithm, biases per layer": ("kerple_log", "per_layer"),
}
KEYS = "sweep encoding method protocol"
NEAR, BEYOND = {"length": L}, {"length": FAR}
IN_WINDOW = BEYOND | {"method": "window", "evaluation": "held-out"}
added = partial(short, sign="+")


def losses(lines: Mapping[str, tuple[str, str, str, str]]) -> Table:
    """Bits per byte at L and 8 L, and their differences."""
    columns = {
        "at L": NEAR,
        "at 8 L": BEYOND,
        "8 L less L": BEYOND | {"less": NEAR, "cell": added},
        "8 L less its window of L": BEYOND | {"less": IN_WINDOW, "cell": added},
    }
    rows = rows_of(*{sweep: None for sweep, *_ in lines.values()})
    return table(rows, where(KEYS, lines), columns, corner="bits per byte")


def factors() -> Table:
    """What a factor changes, of the same seeds."""
    lines = {
        name: {
            "protocol": "same_token",
            "encoding": encoding,
            "run": re.compile(f".*{factor}=True"),
            "less": {"sweep": SWEEP, "run": re.compile(".*")},
        }
        for name, (encoding, factor) in CHANGED.items()
    }
    plain = {"method": "none"}
    columns = {
        "at L": NEAR | plain,
        "at 8 L": BEYOND | plain,
        "in a window of L": IN_WINDOW,
        "in a window that keeps the first token, less at L": BEYOND
        | {"method": "lm_infinite:first=1", "less": NEAR | plain},
    }
    rows, corner = rows_of(SWEEP, FACTORS), "bits per byte, with less without"
    return table(rows, lines, columns, corner=corner, cell=added)


TEXT, OF_FACTORS = {"text": partial(losses, LINES)}, {"factors": factors}
