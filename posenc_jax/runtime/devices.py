"""A mesh of devices, and arrays whose rows are sharded over it, for training and evaluation."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def make_mesh(devices=None) -> Mesh:
    """Build a mesh with one axis, along which each process's devices are contiguous."""
    devices = sorted(devices or jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices), ("data",))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def by_rows(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec("data"))


def own_rows(mesh: Mesh, rows: int) -> slice:
    """Return the rows of a batch that this process reads."""
    local = [i for i, d in enumerate(mesh.devices.flat) if d.process_index == jax.process_index()]
    return slice(local[0] * rows // mesh.size, (local[-1] + 1) * rows // mesh.size)


def spread(batch: Any, mesh: Mesh) -> Any:
    """Place a batch on the devices of all processes; each process gives its own rows."""
    if jax.process_count() == 1:
        return batch  # jit places it faster
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(by_rows(mesh), x), batch)


def shardings(tree: Any, mesh: Mesh, mode: str) -> Any:
    """Return the sharding of each array: `replicated` copies it to all devices, `fsdp` shards it
    along its longest divisible axis."""

    def place(leaf) -> NamedSharding:
        divisible = [i for i, size in enumerate(leaf.shape) if size and size % mesh.size == 0]
        if mode == "replicated" or not divisible:
            return replicated(mesh)
        longest = max(divisible, key=lambda axis: leaf.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*[None] * longest, "data"))

    return jax.tree.map(place, tree)
