"""The factor that was trained, s ln n + b of n keys: python -m study.tuning.factors RUNS OUT.csv"""

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np

import posenc_jax
from posenc_jax.runs.parameters import trained_arrays
from study.tuning.rates import best

ONE_FACTOR = "temperature", "numbers", "long_temperature", "long_numbers"

if __name__ == "__main__":
    with Path(sys.argv[2]).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["rung", "seed", "s", "b"])
        for run in sorted(Path(sys.argv[1]).glob("*-s[0-9]-*")):
            config = json.loads((run / "config.json").read_text())
            rung, seed = config["label"], config["seed"]
            if rung in ONE_FACTOR and config["learning_rate"] == best()[rung]:
                arrays = trained_arrays(posenc_jax.load_run(run).encoding)
                last = {
                    re.split(r"\.", name)[-1]: float(np.ravel(a)[0]) for name, a in arrays.items()
                }
                writer.writerow([rung, seed, f"{last['scale']:.5f}", f"{last['shift']:.5f}"])
