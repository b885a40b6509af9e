"""The table of the page on a mixture."""

from posenc_jax.display import Table
from study.cells import plain, rows_of, table, where

LINES = {
    "RoPE in a window of L": ("rope", "window"),
    "RoPE + Self-Extend": ("rope", "self_extend"),
    "RoPE + YaRN by 8": ("rope", "yarn:8"),
    "RoPE + interpolation by 8": ("rope", "pi:8"),
    "RoPE + NTK by 8": ("rope", "ntk:8"),
    "RoPE": ("rope", "none"),
    "ALiBi": ("alibi", "none"),
    "FIRE": ("fire", "none"),
}
COLUMNS = {
    "text at L": {"protocol": "same_token", "length": 64},
    "text at 8 L": {"protocol": "same_token", "length": 512},
    "answers at 8 L": {"protocol": "answers", "length": 512, "value": "accuracy"},
}


def mixture() -> Table:
    """Bits per byte of text and accuracy of answers, means of two seeds."""
    rows = rows_of("mixture/rows/sweep")
    rows = rows[rows.evaluation != "order"]
    return table(rows, where("encoding method", LINES), COLUMNS, cell=plain)


TABLES = {"mixture": mixture}
