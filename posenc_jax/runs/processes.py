"""Several processes of one program: all compute, and the lead writes.

A process that fails ends with its reason, and jax ends the others.
"""

import json
import os
import traceback
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from posenc_jax.config import Evaluation, Training, schema
from posenc_jax.runtime import devices, errors
from posenc_jax.runtime.terminal import reported, say

SETTINGS = {"JAX_COORDINATOR_ADDRESS": str, "JAX_NUM_PROCESSES": int, "JAX_PROCESS_ID": int}
NEEDS = (
    f"distributed=True needs {', '.join(SETTINGS)}, such as 10.0.0.1:1234, 2 and 0 or 1, or none "
    "of them on a cluster that jax detects: SLURM, Open MPI, a TPU pod"
)
HEARTBEAT_SECONDS = 30  # a process that is silent for so long is dead, and jax ends the others
SHUTDOWN_SECONDS = 30  # processes wait this long for each other at the end
TOGETHER = errors.Stopped, errors.NotFinite  # every process raises them at the same step


@contextmanager
def joined(config: Training | Evaluation) -> Iterator[None]:
    """Connect the processes of a run, and discard what others than the lead print; must precede any
    computation by jax."""
    if not config.distributed:
        yield
        return
    _connect()
    fields = schema.as_fields(config)
    del fields["wandb"]  # it and the place of the cache may differ between processes
    fields["data"].pop("cache", None)
    try:
        check_same(fields, "configuration")
        with ExitStack() as stack:
            if not is_lead():
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
            yield
    except BaseException as error:
        _end(error)
    jax.distributed.shutdown()


def _connect() -> None:
    """By process ids from the environment, or as jax detects them on a cluster."""
    given = {name: os.environ[name] for name in SETTINGS if os.environ.get(name)}
    try:
        options: dict[str, Any] = {
            name.removeprefix("JAX_").lower(): SETTINGS[name](value)
            for name, value in given.items()
        }
        jax.distributed.initialize(
            **options,
            cluster_detection_method="deactivate" if given else None,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except (ValueError, IndexError, RuntimeError) as error:  # IndexError: an address without a port
        variables = " ".join(f"{name}={value}" for name, value in given.items()) or "none"
        raise errors.ConfigError(f"{NEEDS}; got {variables}; jax says: {error}") from error


def _end(error: BaseException) -> NoReturn:
    """Exit without cleaning up, which would wait for the other processes."""
    try:
        code = reported(error)
    except BaseException:
        traceback.print_exception(error)
        say(
            f"error: process {jax.process_index()} of {jax.process_count()} ends. If another one "
            "ended before, see its output; the same commands resume from the last save",
            error=True,
        )
        code = errors.FAULT
    if isinstance(error, TOGETHER):
        jax.distributed.shutdown()  # the end of the lead ends the others
    os._exit(code)


def is_lead() -> bool:
    return jax.process_index() == 0


def check_same(value: Any, what: str, error: type[errors.Stop] = errors.ConfigError) -> None:
    """Refuse processes that were given different values, such as those of another command."""
    if jax.process_count() == 1:
        return
    own = np.uint32(zlib.crc32(json.dumps(value, sort_keys=True).encode()))
    if np.ptp(multihost_utils.process_allgather(own)):
        jax.distributed.shutdown()  # every process ends here
        raise error(f"all processes must be given the same {what}")


def numbers_of_lead(own: Sequence[int]) -> list[int]:
    """The lead's numbers, of which there may be more or fewer than this process has."""
    count = int(arrays_of_lead(np.int32(len(own))))
    return arrays_of_lead(np.resize(np.array(own, np.int32), count)).tolist()


def arrays_of_lead(tree: Any) -> Any:
    """Broadcast the lead's arrays; the others pass arrays of the same shapes."""
    if jax.process_count() == 1:
        return tree
    return jax.tree.map(np.asarray, multihost_utils.broadcast_one_to_all(tree))


def placed(tree: Any, shardings: Any) -> Any:
    """Place the lead's arrays on the devices, one after another; the others pass their shapes."""
    if jax.process_count() == 1:
        # A copy of the host's memory: a state is donated to each step.
        return jax.tree.map(partial(jax.device_put, may_alias=False), tree, shardings)
    names = [jnp.dtype(leaf.dtype).name for leaf in jax.tree.leaves(tree)]
    types = arrays_of_lead(np.array(names, "S16").view(np.uint8)).view("S16")

    def of_lead(leaf, sharding, kind: bytes) -> jax.Array:
        own = leaf if is_lead() else np.zeros(leaf.shape, jnp.dtype(kind.decode()))
        return devices.of_each(arrays_of_lead(own), sharding)

    return jax.tree.map(
        of_lead, tree, shardings, jax.tree.unflatten(jax.tree.structure(tree), types)
    )


def on_host(leaf: Any) -> np.ndarray:
    """Gather an array, which may be sharded over the devices of all processes."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    return np.asarray(leaf)


class Stopping:
    """True once any process received a stop signal, at the same step in all processes.

    Votes are sent with one step and read one step later, so that no step waits for them.
    """

    def __init__(self, signals: Sequence[str], mesh: Mesh):
        self.signals, self.mesh = signals, mesh
        self.any = jax.jit(jnp.any, out_shardings=devices.replicated(mesh))
        self.sent: jax.Array | None = None

    def __call__(self) -> bool:
        if jax.process_count() == 1:
            return bool(self.signals)
        stop, vote = self.sent, np.array([bool(self.signals)])
        placed = (self.mesh.size,), devices.by_device(self.mesh), lambda _: vote
        self.sent = self.any(jax.make_array_from_callback(*placed))
        return stop is not None and bool(stop)

    @property
    def reason(self) -> str:
        return self.signals[0] if self.signals else "a signal to another process"
