"""The devices that a program is compiled for, which need not be those of this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
from jax.sharding import Mesh

_mesh: ContextVar[Mesh | None] = ContextVar("mesh", default=None)


@contextmanager
def compiling_for(mesh: Mesh | None) -> Iterator[None]:
    """What is traced within is for the devices of a mesh; None: for those of this process."""
    token = _mesh.set(mesh)
    try:
        yield
    finally:
        _mesh.reset(token)


def current_mesh() -> Mesh | None:
    return _mesh.get()


def platform() -> str:
    """cpu, gpu or tpu: where what is traced now will run."""
    mesh = current_mesh()
    name = jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
    return {"cuda": "gpu"}.get(name, name)
