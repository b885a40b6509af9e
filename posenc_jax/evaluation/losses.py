"""Compute the loss of every target, with one compiled program per shape and structure."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import models
from posenc_jax.attention import target
from posenc_jax.config import Evaluation
from posenc_jax.data.batches import with_prefix
from posenc_jax.encoding import Encoding
from posenc_jax.runs import parameters, processes
from posenc_jax.runs.subject import Placing, Subject
from posenc_jax.runtime import devices


@jax.jit(static_argnames=("last", "mesh", "cut"))
def losses_of(
    model, encoding, rows, last: int, mesh: Mesh | None = None, cut: bool = False
):  # [N, T + 1] -> [N, last] twice
    with target.compiling_for(mesh, cut=cut):
        return model.losses(rows[:, :-1], rows[:, -last:], encoding, **devices.cutting(mesh))


def losses_by_pieces(
    model, encoding, rows, last: int, piece: int, mesh: Mesh | None = None, cut: bool = False
):
    """Compute the same through a cache, `piece` tokens at a time."""
    length = rows.shape[1] - 1
    cache, parts = models.init_cache(model.config, encoding, len(rows), length, mesh=mesh), []
    for first in range(0, length, piece):
        end = min(first + piece, length)
        scored = min(last - (length - end), end - first)  # targets of this piece
        nats, chosen, cache = _read_piece(
            model, encoding, rows[:, first : end + 1], cache, max(0, scored), mesh, cut
        )
        parts += [(nats, chosen)] if scored > 0 else []
    nats, chosen = zip(*parts, strict=True)
    return jnp.concatenate(nats, axis=1), jnp.concatenate(chosen, axis=1)


@partial(jax.jit, static_argnames=("last", "mesh", "cut"), donate_argnames="cache")
def _read_piece(model, encoding, rows, cache, last: int, mesh: Mesh | None, cut: bool):
    targets = rows[:, rows.shape[1] - last :]
    with target.compiling_for(mesh, cut=cut):
        return model.losses_step(rows[:, :-1], targets, encoding, cache)


class Reader:
    """Compute a model's losses on windows of a text, sharded over all devices.

    A call reads up to `tokens_per_call` tokens on each device. Windows of more than `piece` tokens
    are read through a cache. `sequence` devices share each window, and with `sharding="fsdp"` all
    share the weights.
    """

    def __init__(
        self,
        model: models.Model,
        tokens: np.ndarray,
        tokens_per_call: int,
        piece: int | None = None,
        prefix: int | None = None,
        sequence: int = 1,
        sharding: str = "replicated",
    ):
        self.piece, self.prefix = piece, prefix
        self.mesh = devices.make_mesh(sequence=sequence)
        self.model = devices.placed(model, self.mesh, sharding)
        self.cut = devices.cuts_weights(self.mesh, sharding)
        self.tokens, self.tokens_per_call = tokens, tokens_per_call

    def __call__(
        self,
        encoding: Encoding,
        starts: np.ndarray,  # [N], the first token of each window
        length: int,
        last: int,  # the targets of each window to score
        before_call: Callable[[], None] = lambda: None,
        after_call: Callable[[int], object] = lambda tokens: None,  # the tokens that it read
    ) -> tuple[np.ndarray, np.ndarray]:  # [N, last]: nats, and the token ranked first
        nats = np.empty((len(starts), last), np.float32)
        chosen = np.empty((len(starts), last), np.int32)
        shares, sequence = self.mesh.shape[devices.DATA], self.mesh.shape[devices.SEQUENCE]
        rows = rows_per_call(len(starts), -(-length // sequence), shares, self.tokens_per_call)
        encoding = devices.placed(encoding, self.mesh)
        own = devices.own_rows(self.mesh, rows)
        for first in range(0, len(starts), rows):
            before_call()
            # One shape for all calls: the last one is filled with windows whose losses are dropped.
            batch = starts[np.arange(first, first + rows)[own] % len(starts)]
            tokens = self.tokens[batch[:, None] + np.arange(length + 1)].astype(np.int32)
            tokens = with_prefix(tokens, self.prefix)  # never a target, which are the last ones
            tokens = jax.make_array_from_process_local_data(devices.by_rows(self.mesh), tokens)
            if self.piece is not None and length > self.piece and encoding.consecutive():
                outputs = losses_by_pieces(
                    self.model, encoding, tokens, last, self.piece, self.mesh, self.cut
                )
            else:
                outputs = losses_of(self.model, encoding, tokens, last, self.mesh, self.cut)
            filled = slice(first, min(first + rows, len(starts)))
            for array, values in zip((nats, chosen), outputs, strict=True):
                array[filled] = processes.on_host(values)[: filled.stop - first]
            after_call((filled.stop - first) * length)
        return nats, chosen


def rows_per_call(windows: int, length: int, devices: int, tokens_per_call: int) -> int:
    """Share windows evenly among calls: at most one row a call and device is read in vain."""
    calls = math.ceil(windows / (devices * max(1, tokens_per_call // length)))
    return math.ceil(windows / (calls * devices)) * devices


def placing(config: Evaluation) -> Placing:
    """Says where the arrays of a run go that an evaluation reads."""
    mesh = devices.make_mesh(sequence=config.sequence)
    return partial(parameters.on_device, mesh=mesh, sharding=config.sharding)


def reader_of(config: Evaluation, subject: Subject, tokens: np.ndarray) -> Reader:
    """Make the reader of a text for a subject, as an evaluation asks."""
    return Reader(
        subject.parts.model,
        tokens,
        config.tokens_per_call,
        piece=config.piece,
        prefix=subject.prefix,
        sequence=config.sequence,
        sharding=config.sharding,
    )
