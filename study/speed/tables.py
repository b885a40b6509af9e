"""Tables of the page on speed and memory."""

import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate
from study.cells import STUDY, table, where

ROWS = STUDY / "speed"
MACHINES = {
    "amd-epyc-25-1": "Zen 3",
    "amd-epyc-25-17": "Zen 4",
    "amd-epyc-zen-5": "Zen 5",
    "intel-r-xeon-r-processor-6-167": "Xeon",
}
OVER_ROPE = "time per token over rope"
DECIDING = [  # what, benchmark, case, measure
    ("attention with T5's bias over `jax.nn`, T = 256", "attention", "256 t5", "over jax.nn"),
    ("T = 2,048", "attention", "2048 t5", "over jax.nn"),
    *(
        (f"step over {how} x-transformers, {name}", "train_step", case, f"over {how}")
        for how, name, case in (
            ("eager", "ALiBi, 128 x 32", "128 x 32 alibi"),
            ("eager", "RoPE, 512 x 8", "512 x 8 rope"),
            ("compiled", "RoPE, 128 x 32", "128 x 32 rope"),
            ("compiled", "RoPE, 512 x 8", "512 x 8 rope"),
            ("compiled", "T5, 512 x 8", "512 x 8 t5"),
        )
    ),
    ("forward pass at SmolLM2's shape over torch", "real", "2048", "float32 over torch"),
    (
        *("*time* of decoding over transformers, SmolLM2's shape", "decode_real", "4096 rope"),
        "time per token over transformers",
    ),
    *(
        (f"*step*, {name}", "schemes", case, "time over nope")
        for name, case in (
            ("forget gates", "2048 fox"),
            ("FIRE", "2048 fire"),
            ("DAPE", "2048 dape"),
            ("CoPE", "2048 cope"),
            ("PoPE", "2048 pope"),
            ("retention", "2048 retention"),
            ("the hybrid", "2048 hybrid, three of four decay"),
        )
    ),
    *(
        (f"*decoding*, {name}", "decode_encodings", case, OVER_ROPE)
        for name, case in (
            ("PoPE", "16384 pope"),
            ("retention", "16384 retention"),
            ("the hybrid", "16384 hybrid, three of four decay"),
        )
    ),
]


def ratio(one: Estimate) -> str:
    return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]"


def speed() -> Table:
    """What decides, beside each machine that measured it."""
    files = {name: pd.read_csv(ROWS / f"{stem}.csv") for stem, name in MACHINES.items()}
    rows = pd.concat(file.assign(machine=name, seed=0) for name, file in files.items())
    rows = rows.rename(columns={"low": "middle_low", "high": "middle_high"})
    lines = where("benchmark case measure", {what: place for what, *place in DECIDING})
    columns = {name: {"machine": name} for name in MACHINES.values()}
    return table(rows, lines, columns, "middle", cell=ratio)


TABLES = {"speed": speed}
