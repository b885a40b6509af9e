"""A mesh of devices, and arrays that are sharded over it, for training and evaluation.

Its axis `data` shares out the rows of a batch, its axis `sequence` the tokens of a row.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from posenc_jax.checks import whole_number
from posenc_jax.runtime.errors import ConfigError

DATA, SEQUENCE = AXES = ("data", "sequence")
MODES = REPLICATED, FSDP = ("replicated", "fsdp")  # of sharding weights


def make_mesh(devices=None, sequence: int = 1) -> Mesh:
    """Build a mesh with `sequence` devices per row; each process's devices are contiguous."""
    devices = sorted(devices or jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices).reshape(-1, sequence), AXES)


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def by_rows(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(DATA))


def by_device(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(AXES))


def by_pieces(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(DATA, SEQUENCE))


def own_rows(mesh: Mesh, rows: int) -> slice:
    """Return the rows of a batch that this process reads."""
    shares = mesh.shape[DATA]
    local = [
        i
        for i, devices in enumerate(mesh.devices)
        if any(device.process_index == jax.process_index() for device in devices)
    ]
    return slice(local[0] * rows // shares, (local[-1] + 1) * rows // shares)


def spread(batch: Any, mesh: Mesh) -> Any:
    """Place a batch on the devices of all processes; each process gives its own rows."""
    if jax.process_count() == 1:
        return batch  # jit places it faster
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(by_rows(mesh), x), batch)


def shardings(tree: Any, mesh: Mesh, mode: str) -> Any:
    """Return the sharding of each array: `replicated` copies it to all devices, `fsdp` cuts it."""

    def place(leaf) -> NamedSharding:
        return replicated(mesh) if mode == REPLICATED else _of_cut(leaf.shape, mesh)

    return jax.tree.map(place, tree)


def _of_cut(shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    """Along the last axis but one, which a gather joins without a transpose, else along the last
    that divides; so a matrix of a stack is cut as the stack is."""
    divisible = [axis for axis, size in enumerate(shape) if size and size % mesh.size == 0]
    if not divisible:
        return replicated(mesh)
    axis = max(divisible, key=lambda axis: (axis == len(shape) - 2, axis))
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, AXES))


def whole(weight: jax.Array, mesh: Mesh | None) -> jax.Array:
    """A weight that is cut over devices, gathered on each; without a mesh, as it is."""
    if mesh is None:
        return weight
    # Pinned before: XLA would gather the float32 array that a bfloat16 weight is cast from.
    return jax.lax.with_sharding_constraint(cut(weight, mesh), replicated(mesh))


def cut(weight: jax.Array, mesh: Mesh | None) -> jax.Array:
    """A weight, or the sum of a gradient's parts on all devices, cut over them."""
    if mesh is None:
        return weight
    return jax.lax.with_sharding_constraint(weight, _of_cut(weight.shape, mesh))


def placed(tree: Any, mesh: Mesh, mode: str = REPLICATED) -> Any:
    """Place arrays, equal in all processes, as `shardings` says."""
    where = shardings(tree, mesh, mode)
    if jax.process_count() == 1:
        return jax.device_put(tree, where)

    return jax.tree.map(of_each, tree, where)


def of_each(whole: Any, sharding: NamedSharding) -> jax.Array:
    """Place an array that every process has, unless it is there."""
    if isinstance(whole, jax.Array) and whole.sharding == sharding:
        return whole
    whole = np.asarray(whole)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def cuts_weights(mesh: Mesh, mode: str) -> bool:
    """True if products gather their weights; a row that is cut is computed with all of them."""
    return mode == FSDP and mesh.shape[SEQUENCE] == 1


def cutting(mesh: Mesh | None) -> dict[str, Mesh]:
    """Return the option of `Model.losses` for a mesh that cuts rows; none for one that does not."""
    return {"mesh": mesh} if mesh is not None and mesh.shape[SEQUENCE] > 1 else {}


def check(sequence: int) -> None:
    """Refuse `sequence` unless it divides the number of devices."""
    whole_number("sequence", sequence, at_least=1)
    count = jax.device_count()
    if count % sequence:
        raise ConfigError(
            f"sequence = {sequence} must divide the number of devices, which is {count}; "
            "sequence = 1 always does, and a resumed run may set it: --config.sequence=1"
        )
