"""The table of the README: loss, found, order and the time of a step, by method."""

import numpy as np
import pandas as pd

from study.cells import STUDY, markdown, seeds
from study.order import tables as order

TEXT = ("text/rows/sweep", "content/rows/text")
STEPS = "speed/amd-epyc-zen-5.csv"  # two cores
ORDER_AFTER = 9_600  # steps
METHODS = {  # encoding, extension on text, scheme of the step; the name is that of the order page
    "NoPE": ("nope", "none", "nope"),
    "NoPE with log-n": ("nope", "logn", "nope"),
    "RoPE": ("rope", "none", "rope"),
    "RoPE with YaRN": ("rope", "yarn", "rope"),
    "RoPE with PI": ("rope", "pi", "rope"),
    "RoPE with Self-Extend, window 16": ("rope", "self_extend", "rope"),  # L / 4, as on text
    "ALiBi": ("alibi", "none", "alibi"),
    "T5 bias": ("t5", "none", "t5"),
    "FIRE": ("fire", "none", "fire"),
    "forget gates": ("fox", "none", "fox"),
    "CoPE": ("cope", "none", "cope"),
}


def summary() -> str:
    text = pd.concat(pd.read_csv(STUDY / rows / "rows.csv.xz", low_memory=False) for rows in TEXT)
    text = text[(text.protocol == "same_token") & text.window.isna()]
    times = pd.read_csv(STUDY / STEPS)
    times = times[times.benchmark == "schemes"].set_index("case").middle
    body = []
    for name, (encoding, extension, scheme) in METHODS.items():
        own = text[(text.encoding == encoding) & (text.extension == extension)]
        values = [seeds(own[own.length == length], "bpb") for length in (128, 1_024)]
        for protocol, column in (("found", "found"), ("last_of_two", "order")):
            rows = order.measured(order.grid(), protocol)
            rows = rows[(rows.name == name) & (rows.steps == ORDER_AFTER)]
            values.append(seeds(rows, column))
        step = times.get(f"512 {scheme}")
        cells = [f"{one.mean():.2f}" if in_every_seed(one) else "" for one in values]
        body.append(
            [name.removesuffix(", window 16"), *cells, "" if step is None else f"{float(step):.1f}"]
        )
    return markdown(["", "loss, L", "loss, 8 L", "found", "order", "slowdown"], body)


def in_every_seed(values: np.ndarray) -> bool:
    return len(values) > 0 and not np.isnan(values).any()


TABLES = {"summary": summary}
