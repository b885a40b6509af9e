"""Options of YaRN by their loss on a rung's rows: python -m study.tuning.search RUNG OUT.csv

RUNG is a run of the rung `all`. The candidates share its batches, with their jumps, from the first
to the last, so the search reads as many tokens as the rung trains on, forward alone three times as
often as a step would: a step is worth three passes.
"""

import csv
import dataclasses
import itertools
import sys
from pathlib import Path

import jax

from posenc_jax import composition
from posenc_jax.config.schema import Extension
from posenc_jax.data.batches import batches_of
from posenc_jax.data.prepare import prepare_corpora
from posenc_jax.runs import parameters
from posenc_jax.runs.subject import run_config, weights_of
from posenc_jax.runtime import backend

PASSES = 3  # forward passes of a step with its gradient
SCALES = 0.5, 0.75, 1.0, 1.5, 2.0  # times that of the rung
COEFFICIENTS = 0.0, 0.05, 0.1, 0.15  # of YaRN's factor; 0.1 is published


def main(rung: Path, out: Path) -> None:
    backend.configure()
    config = run_config(rung)
    corpus = prepare_corpora(config.data.source, config.seed)
    rows, reach = batches_of(corpus, config), config.extension.scale
    loss = jax.jit(type(parameters.blank(config).model).loss)
    candidates = list(itertools.product(SCALES, COEFFICIENTS))
    steps = PASSES * config.steps // len(candidates)
    with out.open("w", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["rung", "extension", "nats", "targets"])
        for times, coefficient in candidates:
            options = {"coefficient": coefficient} if coefficient else {"attention_factor": 1.0}
            chosen = Extension("yarn", times * reach, options)
            own = dataclasses.replace(config, extension=chosen)
            parts = parameters.blank(own).replace(parameters.on_device(weights_of(own)[0]))
            nats = targets = 0.0
            for step in range(steps):
                batch = rows.batch(step)
                key = jax.random.fold_in(parameters.key_of(config.seed), step)
                given = batch.inputs, batch.targets, batch.weights
                nats += float(loss(parts.model, *given, parts.encoding, key=key))
                targets += float(batch.weights.sum())
            name = composition.text([composition.Part("yarn", chosen.scale, options)])
            writer.writerow([rung.name, name, nats / targets, targets])
            print(f"{name}  {nats / targets:.4f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
