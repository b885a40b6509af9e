"""Memory of a training step on each of so many GPUs, from the shapes of its arrays."""

import dataclasses
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from models.likelihoods import LOGITS
from posenc_jax.config import Training, trained
from posenc_jax.data.batches import Batch
from posenc_jax.runs import parameters
from posenc_jax.runs.subject import types_of
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.training import optimizer, train_step

ERROR = 1.1  # of the reckoning, against compiled programs


def refuse_too_large(run: Training) -> None:
    """Refuse a step that no GPU here holds, before anything is made."""
    room = room_of_a_gpu()
    if room is None:
        return
    held = of_a_step(run, jax.device_count())
    if held["in all"] > ERROR * room:
        raise ConfigError(
            f"a step holds {in_words(held)} GiB on each GPU, which has {room / 2**30:.3g} for it; "
            "use model.remat=True, sharding=fsdp on several, a smaller batch_size or a larger "
            "accumulate"
        )


def room_of_a_gpu() -> int | None:
    """Bytes that a GPU gives to this process."""
    if jax.default_backend() != "gpu":
        return None
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit")


def in_words(held: dict[str, float]) -> str:
    return ", ".join(f"{name} {size / 2**30:.3g}" for name, size in held.items())


def of_a_step(run: Training, devices: int) -> dict[str, float]:
    """Bytes that a training step holds on each of so many GPUs, by what they are for."""
    rows = max(1, run.batch_size // run.accumulate * run.sequence // devices)
    share = devices if run.sharding == "fsdp" else 1
    shape = rows, run.train_length
    ints: Any = jax.ShapeDtypeStruct(shape, jnp.int32)
    floats: Any = jax.ShapeDtypeStruct(shape, jnp.float32)
    every = parameters.blank(run).params()
    own, kept = jax.eval_shape(partial(trained.split, config=run), every)
    types = types_of(Path(run.init_from)) if kept else {}
    kept = {n: jax.ShapeDtypeStruct(x.shape, types.get(n, x.dtype)) for n, x in kept.items()}
    weights = {leaf.shape for leaf in jax.tree.leaves((own, kept))}

    def bytes_of(tree) -> float:
        leaves = jax.tree.leaves(tree)
        sizes = [(leaf.size * leaf.dtype.itemsize, leaf.shape in weights) for leaf in leaves]
        return sum(size / share if is_weight else size for size, is_weight in sizes)

    def saved(remat: bool) -> float:  # by the forward pass; a kernel of a GPU saves what blocks do
        attention = "blockwise" if run.model.attention == "auto" else run.model.attention
        model = dataclasses.replace(run.model, remat=remat, attention=attention)
        parts = parameters.blank(dataclasses.replace(run, model=model))

        def backward(own, kept, batch, key):
            def loss(own):
                every, masked = trained.whole(own, kept, run), run.data.mask_documents
                return train_step.summed_loss(parts, every, batch, key, masked)

            return jax.vjp(loss, own)[1]

        batch = Batch(ints, ints, floats, ints, floats)
        left = jax.tree.leaves(jax.eval_shape(backward, own, kept, batch, jax.random.key(0)))
        held = Counter((leaf.shape, leaf.dtype) for leaf in kept.values())
        for place, leaf in reversed([*enumerate(left)]):
            if held[leaf.shape, leaf.dtype] > 0:  # a frozen array, which is there already
                held[leaf.shape, leaf.dtype] -= 1
                del left[place]
        return bytes_of(left) / run.sequence

    def state(params):
        return train_step.fresh_state(params, optimizer.make(run))

    numbers = rows * run.train_length * run.model.vocab_size // run.sequence
    pieces = 1 << max(0, -(-numbers // LOGITS["gpu"]) - 1).bit_length()
    held = {
        "state": bytes_of(jax.eval_shape(state, own)),
        **({"frozen": bytes_of(kept)} if kept else {}),
        "activations": saved(run.model.remat),
        "with model.remat": saved(True),
        "logits at once": 4 * numbers / pieces,
        "gradient": bytes_of(own),
    }
    # The gradient takes the place of activations; micro-batches have a sum of gradients besides.
    most = max(held["activations"] + held["logits at once"], held["gradient"])
    if run.accumulate > 1:
        most += held["gradient"]
    return {"in all": held["state"] + held.get("frozen", 0) + most} | held
