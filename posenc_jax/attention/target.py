"""The devices that a program is compiled for, which need not be those of this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
from jax.sharding import Mesh

from posenc_jax.runtime.devices import SEQUENCE

_mesh: ContextVar[Mesh | None] = ContextVar("mesh", default=None)
_cut: ContextVar[bool] = ContextVar("cut", default=False)


@contextmanager
def compiling_for(mesh: Mesh | None, *, cut: bool = False) -> Iterator[None]:
    """What is traced within is for the devices of a mesh; None: for those of this process. With
    `cut`, they share the weights."""
    tokens = _mesh.set(mesh), _cut.set(cut)
    try:
        yield
    finally:
        _mesh.reset(tokens[0])
        _cut.reset(tokens[1])


def current_mesh() -> Mesh | None:
    return _mesh.get()


def mesh_of_weights() -> Mesh | None:
    """The mesh whose devices share the weights, which a product gathers; None: each has all."""
    return _mesh.get() if _cut.get() else None


def share_of_rows(count: int) -> int:
    """Rows of each device, of so many that are traced; where rows are cut, those of one device."""
    mesh = _mesh.get()
    return count if mesh is None or mesh.shape[SEQUENCE] > 1 else -(-count // mesh.size)


def platform() -> str:
    """cpu, gpu or tpu: where what is traced now will run."""
    mesh = current_mesh()
    name = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    return {"cuda": "gpu"}.get(name, name)
