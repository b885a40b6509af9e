"""eval/keys.csv: how many keys a flat query sees, by layer and head, before and after training."""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically

FILE = "keys.csv"
COLUMNS = ("step", "layer", "head", "keys")


def write(folder: Path, found: Mapping[int, np.ndarray]) -> None:
    """Writes the effective keys [layers, H] by step, if there are any; other steps stay."""
    if not found:
        (folder / FILE).unlink(missing_ok=True)
        return
    try:
        earlier = read(folder)
    except Stop:
        earlier = {}
    lines = [
        f"{step},{layer},{head},{keys:.6g}"
        for step, own in sorted((earlier | dict(found)).items())
        for (layer, head), keys in np.ndenumerate(own)
    ]
    write_atomically(folder / FILE, "\n".join([",".join(COLUMNS), *lines, ""]))


def read(folder: Path) -> dict[int, np.ndarray]:
    """[layers, H] by step; nothing where there is no file."""
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
    layers = sorted({layer for at, layer, _ in rows if at == step})
    return np.array([[k for at, own, k in rows if (at, own) == (step, n)] for n in layers])
