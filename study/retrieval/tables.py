"""Tables of the pages on retrieval."""

import re

from posenc_jax.display import Table
from study.cells import rows_of, table, where

FAR = 512
SWEEP, SHIPPED = "retrieval/rows/sweep", "retrieval/rows/shipped"
RATES, LAWS = "retrieval/rows/rates", "retrieval/rows/laws"
DESIGNS = {  # where their rows are, the names of their runs, and the reader without order
    "one rate": (SWEEP, r".*-s\d", 0.821),
    "tuned": (RATES, ".*", 0.821),
    "near": (LAWS, r".*-gaps=log-s\d", 0.569),
    "set once": (LAWS, r".*-variant=once-s\d", 1.0),
}
LINES = {
    "RoPE": ("rope", "none"),
    "RoPE in a window of L": ("rope", "window"),
    "RoPE + YaRN by 8": ("rope", "yarn:8"),
    "RoPE + Self-Extend": ("rope", "self_extend"),
    "randomised positions": ("randomized", "none"),
    "FIRE": ("fire", "none"),
    "NoPE": ("nope", "none"),
    "T5": ("t5", "none"),
    "Sandwich": ("sandwich", "none"),
    "Kerple, logarithm": ("kerple_log", "none"),
    "Kerple, logarithm + log-n": ("kerple_log", "logn"),
}
ADDED = {
    "nothing: RoPE": (SWEEP, "rope-s."),
    "rotation of 3/4 of the pairs (p-RoPE)": (SHIPPED, "prope-s."),
    "rotation of the pairs that turn within L": (SHIPPED, "prope-s.-keep=turned"),
    "trained frequencies": (SHIPPED, "rope_trained-s."),
    "a trained sink": (SHIPPED, "rope-s.-sink=True"),
    "a trained scale of scores (SSMax)": (SHIPPED, "ssmax-s."),
    "chunks of 32, then no position (Llama 4)": (SHIPPED, "ssmax-s.-.*llama4.*"),
    "a window of 32, then no position": (SHIPPED, "hybrid_nope-s.-pattern=local_global-window=32"),
}


ALL = {"protocol": "answers", "length": FAR, "part": ""}


def of_design(name: str) -> dict:
    sweep, run, _ = DESIGNS[name]
    return {"sweep": sweep, "run": re.compile(run)}


def retrieval() -> Table:
    """Accuracy at 8 L under four designs."""
    columns = {name: ALL | of_design(name) for name in DESIGNS}
    lines = where("encoding method", LINES)
    made = table(rows_of(SWEEP, RATES, LAWS), lines, columns, "accuracy")
    readers = [f"{reader:.2f}" for *_, reader in DESIGNS.values()]
    return Table("", made.head, [["a reader without order", *readers], *made.rows])


def added(name: str) -> dict:
    """Rows of what was added to RoPE."""
    sweep, run = ADDED[name]
    return {"sweep": sweep, "run": re.compile(f"variables-{run}")}


def back(part: str) -> dict:
    """Of values set so many tokens back."""
    return ALL | {"protocol": "gap", "part": part}


def shipped() -> Table:
    """Accuracy at 8 L, of values within L too, of what shipped models add to RoPE."""
    columns = {
        "set 33 to 64 back": back("33-64") | {"method": "none"},
        "all": ALL | {"method": "none"},
        "all, YaRN by 8": ALL | {"method": "yarn:8"},
    }
    lines = {name: added(name) for name in ADDED}
    return table(rows_of(SWEEP, SHIPPED), lines, columns, "accuracy")


RETRIEVAL, ADDITIONS = {"retrieval": retrieval}, {"shipped": shipped}
