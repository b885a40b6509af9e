"""The loss on held-out text while a run trains."""

import jax
import numpy as np

from posenc_jax.data.batches import Batch, held_out
from posenc_jax.training import step as steps


class Validation:
    """At the trained length, on the same rows every time."""

    def __init__(self, config, parts, corpus, mesh):
        self.every, self.last, self.size = config.valid_every, config.steps, config.batch_size
        self.mesh, self.own = mesh, steps.own_rows(mesh, config.batch_size)
        self.sums = steps.loss_sums(parts, config.data.mask_documents, mesh)
        self.rows: Batch | None = None
        if len(corpus.valid.tokens) >= 2 * config.train_length:
            self.rows = held_out(
                corpus.valid,
                length=config.train_length,
                rows=config.valid_batches * config.batch_size,
                within_documents=config.data.mask_documents,
            )

    def due(self, at: int) -> bool:
        return self.rows is not None and (at % self.every == 0 or at == self.last)

    def __call__(self, params) -> dict[str, float]:
        assert self.rows is not None
        total = np.zeros(3)
        count = len(self.rows.inputs)
        for first in range(0, count, self.size):
            index = np.arange(first, first + self.size)[self.own]
            rows = jax.tree.map(lambda x, i=index: x[i % count], self.rows)
            repeats = (index < count)[:, None]  # a short last batch is filled with rows of weight 0
            rows = rows._replace(weights=rows.weights * repeats)
            total += np.array(jax.device_get(self.sums(params, steps.spread(rows, self.mesh))))
        nats, targets, size = total
        return {"valid_loss": nats / targets, "valid_bpb": nats / size / np.log(2)}
