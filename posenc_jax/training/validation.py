"""Measure the loss on held-out text while a run trains."""

import jax
import numpy as np

from posenc_jax.data.batches import Batch, rows_of
from posenc_jax.runtime import devices
from posenc_jax.training import train_step


class Validation:
    """The loss at the trained length on fixed rows of the splits `valid` and `choose`.

    The first text of a mixture is named by its split, others like `valid_NAME`.
    """

    def __init__(self, config, parts, corpus, mesh, frozen):
        self.every, self.last, self.size = config.valid_every, config.steps, config.batch_size
        self.mesh, self.local_rows = mesh, devices.own_rows(mesh, config.batch_size)
        self.sums, self.frozen = train_step.loss_sums(parts, config, mesh), frozen
        self.lossless = corpus.lossless
        self.rows = {
            f"{word}_{name}" if number else word: rows_of(
                split, config, corpus.lengths.get(name)
            ).held_out(config.valid_batches * config.batch_size)
            for number, (name, part) in enumerate(corpus.parts.items())
            for word, split in (("valid", part.valid), ("choose", part.choose))
            if len(split.tokens) >= 2 * config.train_length
        }

    def due(self, step: int) -> bool:
        return bool(self.rows) and (step % self.every == 0 or step == self.last)

    def __call__(self, params) -> dict[str, float | None]:
        values = {}
        for name, rows in self.rows.items():
            nats, targets, size = self._sums(params, rows)
            values[f"{name}_loss"] = nats / targets
            values[f"{name}_bpb"] = nats / size / np.log(2) if self.lossless else None
        return values

    def _sums(self, params, held: Batch) -> np.ndarray:  # [3]: nats, targets, bytes
        total = np.zeros(3)
        count = len(held.inputs)
        for first in range(0, count, self.size):
            index = np.arange(first, first + self.size)[self.local_rows]
            rows = jax.tree.map(lambda x, i=index: x[i % count], held)
            repeats = (index < count)[:, None]  # rows of weight 0 fill a short last batch
            rows = rows._replace(weights=rows.weights * repeats)
            rows = devices.spread(rows, self.mesh)
            total += np.array(jax.device_get(self.sums(params, self.frozen, rows)))
        return total
