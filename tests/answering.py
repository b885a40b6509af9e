"""Data of a report of question-answering runs with chosen accuracies."""

from pathlib import Path

import numpy as np
import pandas as pd

from posenc_jax.config.schema import Encoding, Training
from posenc_jax.evaluation.cells import DOCUMENTS, Cell
from posenc_jax.report.runs import ReportData, Run

L, LONG = 64, 512
BITS = ("bpb", "bpb_low", "bpb_high")
PARTS = ["1-64", "65-512"]


def cell(group, method, accuracy, *, trained=L, by_gap=(1.0, 0.5), length=LONG):
    """Return the rows of one method: accuracy at the longest length and by gap."""
    encoding = group.partition("-")[0]
    extension, _, scale = method.partition(":")
    names = {"id": group, "name": group, "group": group, "encoding": encoding, "seed": 0}
    facts = {"trained": trained, "method": method, "extension": extension, "length": length}
    facts["scale"] = float(scale or "nan")
    values = {"chance": 1 / 6, "ceiling": 1.0, "orderless": np.nan, "answers": 100.0}
    values |= {"token_hash": "t", "nll": np.nan, "null_nll": np.nan}
    values |= dict.fromkeys(("accuracy_low", "accuracy_high", *BITS), np.nan)
    row = names | facts | values | {"protocol": "answers", "part": "", "accuracy": accuracy}
    gaps = [
        row | {"protocol": "gap", "part": part, "accuracy": value}
        for part, value in zip(PARTS, by_gap, strict=True)
    ]
    return [row, *gaps]


def of_text(group, bpb):
    row = cell(group, "none", None)[0]
    return [row | {"protocol": "same_token", "bpb": bpb, "length": at} for at in (L, LONG)]


def gathered(*cells):
    points = pd.DataFrame([row for rows in cells for row in rows])
    points = points.astype({"accuracy": float, "bpb": float})
    runs = [_run(row) for row in points.drop_duplicates("group").itertuples()]
    none = points.iloc[:0]
    return ReportData(runs, points, none, [])


def _run(row):
    config = Training(train_length=row.trained, encoding=Encoding(name=row.encoding))
    cells = [Cell({"step": 0}, *[np.zeros(0)] * (len(DOCUMENTS) + 2))]
    return Run(
        Path(row.group), config, {}, "done", 0, False, {}, "", "", "", cells=cells, group=row.group
    )
