"""Compile the training step and the loss of a batch over a mesh of devices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from posenc_jax.attention import target
from posenc_jax.config import trained
from posenc_jax.data.batches import Batch
from posenc_jax.runs.parameters import Params, Parts, key_of
from posenc_jax.runtime import devices

State = dict[str, Any]  # {"params", "opt", "step"}: plain dictionaries and optax's tuples of arrays


def fresh_state(params: Params, optimizer: optax.GradientTransformation) -> State:
    return {"params": params, "opt": optimizer.init(params), "step": jnp.zeros((), jnp.int32)}


def summed_loss(
    parts: Parts, params, batch: Batch, key, mask_documents: bool, mesh: Mesh | None = None
) -> jax.Array:
    """The sum of the nats of a batch times its weights."""
    run = parts.replace(params)
    segments = jnp.asarray(batch.segments) if mask_documents else None
    options = {"key": key, "segments": segments, **devices.cutting(mesh)}
    inputs, targets, weights = map(jnp.asarray, (batch.inputs, batch.targets, batch.weights))
    return run.model.loss(inputs, targets, weights, run.encoding, **options)


def train_step(
    parts: Parts, optimizer: optax.GradientTransformation, config, mesh: Mesh
) -> Callable:
    """Compile (state, frozen, batch) -> (state, metrics); the state is donated, rows are
    sharded."""
    pieces = config.accumulate

    def gradient(params, frozen, batch, key):
        """Return the summed loss and its gradient, one piece of the batch at a time."""

        def piece_loss(params, batch, key):
            every = trained.whole(params, frozen, config)
            return summed_loss(parts, every, batch, key, config.data.mask_documents, mesh)

        if pieces == 1:
            return jax.value_and_grad(piece_loss)(params, batch, key)

        def add(total, piece):
            rows, index = piece
            grads = jax.value_and_grad(piece_loss)(params, rows, jax.random.fold_in(key, index))
            return jax.tree.map(jnp.add, total, grads), None

        # Pieces are strided over the rows, so that each piece is on all devices.
        cut = jax.tree.map(lambda x: x.reshape(-1, pieces, *x.shape[1:]).swapaxes(0, 1), batch)
        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        return jax.lax.scan(add, zero, (cut, jnp.arange(pieces)))[0]

    cut = devices.cuts_weights(mesh, config.sharding)

    def step(state, frozen, batch):
        with target.compiling_for(mesh, cut=cut):
            return update(state, frozen, batch)

    def update(state, frozen, batch):
        key = jax.random.fold_in(key_of(config.seed), state["step"])
        total, gradients = gradient(state["params"], frozen, batch, key)
        weight = jnp.maximum(jnp.sum(batch.weights), 1.0)  # all targets may have weight 0
        gradients = jax.tree.map(lambda g: g / weight, gradients)
        updates, opt = optimizer.update(gradients, state["opt"], state["params"])
        metrics = {
            "loss": total / weight,
            "bpb": total / jnp.maximum(jnp.sum(batch.bytes * batch.weights), 1.0) / jnp.log(2.0),
            "grad_norm": optax.tree.norm(gradients),
        }
        if gradients["encoding"]:  # its share of the clipped norm
            metrics["encoding_grad_norm"] = optax.tree.norm(gradients["encoding"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt, "step": state["step"] + 1}, metrics

    def begin(params):
        own, frozen = trained.split(params, config)
        return fresh_state(own, optimizer), frozen

    held = devices.shardings(jax.eval_shape(begin, parts.params()), mesh, config.sharding)
    given, out = (*held, devices.by_rows(mesh)), (held[0], devices.replicated(mesh))
    return jax.jit(step, in_shardings=given, out_shardings=out, donate_argnums=0)


def loss_sums(parts: Parts, config, mesh: Mesh) -> Callable:
    """Compile (params, frozen, batch) -> sums of nats, targets and bytes, without random
    positions."""
    cut = devices.cuts_weights(mesh, config.sharding)

    def sums(params, frozen, batch):
        with target.compiling_for(mesh, cut=cut):
            every = trained.whole(params, frozen, config)
            nats = summed_loss(parts, every, batch, None, config.data.mask_documents, mesh)
        return nats, jnp.sum(batch.weights), jnp.sum(batch.bytes * batch.weights)

    # None: parameters keep their sharding.
    placed = (None, None, devices.by_rows(mesh))
    return jax.jit(sums, in_shardings=placed, out_shardings=devices.replicated(mesh))
