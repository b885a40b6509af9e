"""One row per run, extension, protocol and length, from sums and counts of each document."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posenc_jax.training.run import write_atomically

COLUMNS = (
    "run,encoding,extension,scale,protocol,window,stride,train_length,length,tokens,token_hash,nll,"
    "nll_se,ppl,bpb,null_nll,gain_bpb,seed,step"
).split(",")


def mean_and_error(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float | None]:
    """The mean over tokens, and its standard error over documents (ratio estimator)."""
    mean = float(sums.sum() / counts.sum())
    documents = len(sums)
    if documents < 2:
        return mean, None
    spread = np.sum((sums - mean * counts) ** 2) * documents / (documents - 1)
    return mean, float(np.sqrt(spread) / counts.sum())


def row(losses: np.ndarray, document: np.ndarray, size: int, **fields) -> dict:
    """`losses` [N, ...] are of windows of these documents; `size` is the bytes of their targets."""
    per_window = losses.reshape(len(document), -1)
    documents = int(document.max()) + 1
    sums = np.bincount(document, per_window.sum(axis=1), documents)
    counts = np.bincount(document, np.full(len(document), per_window.shape[1]), documents)
    nll, error = mean_and_error(sums, counts)
    finite = bool(np.isfinite(nll))
    return (
        {name: None for name in COLUMNS}
        | fields
        | {
            "tokens": int(counts.sum()),
            "nll": nll if finite else None,
            "nll_se": error if finite else None,
            "ppl": float(np.exp(nll)) if finite else None,
            "bpb": float(sums.sum() / size / np.log(2)) if finite else None,
        }
    )


def write(folder: Path, rows: Sequence[dict]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / "curves.csv", table.getvalue())
    write_atomically(folder / "curves.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
