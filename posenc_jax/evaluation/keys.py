"""eval/keys.csv: effective keys of a query without content, by layer, head and training step."""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically

FILE = "keys.csv"
COLUMNS = ("step", "layer", "head", "keys")


def write(folder: Path, by_step: Mapping[int, np.ndarray]) -> None:
    """Write effective keys [layers, H] by step and keep other steps; without any, remove the
    file."""
    if not by_step:
        (folder / FILE).unlink(missing_ok=True)
        return
    try:
        earlier = read(folder)
    except Stop:
        earlier = {}
    lines = [
        f"{step},{layer},{head},{keys:.6g}"
        for step, layers in sorted((earlier | dict(by_step)).items())
        for (layer, head), keys in np.ndenumerate(layers)
    ]
    write_atomically(folder / FILE, "\n".join([",".join(COLUMNS), *lines, ""]))


def read(folder: Path) -> dict[int, np.ndarray]:
    """Read effective keys [layers, H] by step; none without a file."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [
                (int(r["step"]), int(r["layer"]), float(r["keys"])) for r in csv.DictReader(stream)
            ]
        return {step: _by_layer(step, rows) for step in sorted({row[0] for row in rows})}
    except (KeyError, ValueError, TypeError) as error:
        raise Stop(f"{path} is damaged: {error!r}; run eval_extrapolation.py again") from error


def _by_layer(step: int, rows: list[tuple[int, int, float]]) -> np.ndarray:
    layers = sorted({layer for row_step, layer, _ in rows if row_step == step})
    return np.array([[keys for s, n, keys in rows if (s, n) == (step, layer)] for layer in layers])
