"""The table of the README: loss, found, order and the time of a step, by method."""

import pandas as pd

from posenc_jax.display import Table
from study.cells import STUDY, plain, rows_of, table, where
from study.order.tables import BUDGETS, FOUND, ORDER

STEPS = "speed/amd-epyc-zen-5.csv"  # two cores
METHODS = {
    "NoPE": ("nope", "none"),
    "NoPE with log-n": ("nope", "logn"),
    "RoPE": ("rope", "none"),
    "RoPE with YaRN": ("rope", "yarn:8"),
    "RoPE with PI": ("rope", "pi:8"),
    "RoPE with Self-Extend": ("rope", ["self_extend", "self_extend:window=16"]),  # L / 4
    "ALiBi": ("alibi", "none"),
    "T5 bias": ("t5", "none"),
    "FIRE": ("fire", "none"),
    "forget gates": ("fox", "none"),
    "CoPE": ("cope", "none"),
}
COLUMNS = {
    "loss, L": {"protocol": "same_token", "length": 128, "value": "bpb"},
    "loss, 8 L": {"protocol": "same_token", "length": 1_024, "value": "bpb"},
    "found": FOUND | {"step": BUDGETS[-1]},
    "order": ORDER | {"step": BUDGETS[-1]},
}


def summary() -> Table:
    rows = rows_of("text/rows/sweep", "content/rows/text", "order/rows/budget")
    made = table(rows, where("encoding method", METHODS), COLUMNS, cell=plain, missing="")
    times = pd.read_csv(STUDY / STEPS)
    times = times[times.benchmark == "schemes"].set_index("case").middle
    cases = {name: f"512 {encoding}" for name, (encoding, _) in METHODS.items()}
    slower = {name: f"{times[case]:.1f}" for name, case in cases.items() if case in times}
    body = [[*line, slower.get(line[0], "")] for line in made.rows]
    return Table("", [*made.head, "slowdown"], body)


TABLES = {"summary": summary}
