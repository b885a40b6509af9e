"""Several processes of one program: all compute, and the lead writes.

A process that fails ends with its reason, and jax ends the others.
"""

import json
import os
import traceback
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from posenc_jax.config import Evaluation, Training, schema
from posenc_jax.runtime import devices, errors
from posenc_jax.runtime.terminal import reported, say

NAMES = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
NEEDS = (
    f"distributed=True needs {', '.join(NAMES)}, such as 10.0.0.1:1234, 2 and 0 or 1, or none of "
    "them on a cluster that jax detects: SLURM, Open MPI, a TPU pod"
)
HEARTBEAT_SECONDS = 30  # a process that is silent for so long is dead, and jax ends the others
SHUTDOWN_SECONDS = 30  # processes wait this long for each other at the end
TOGETHER = errors.Stopped, errors.NotFinite  # every process raises them at the same step


@contextmanager
def joined(config: Training | Evaluation) -> Iterator[None]:
    """Connect the processes of a run; must precede any computation by jax."""
    if not config.distributed:
        yield
        return
    try:
        jax.distributed.initialize(
            **_named(os.environ),
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        raise errors.ConfigError(f"{NEEDS}; jax says: {error}") from error
    try:
        check_same(_command(config), "configuration")
        yield
    except BaseException as error:
        _end(error)
    jax.distributed.shutdown()


def _command(config: Training | Evaluation) -> dict[str, Any]:
    """The fields that must be equal in all processes."""
    fields = schema.as_fields(config)
    fields.pop("wandb")
    fields["data"].pop("cache", None)
    return fields


def _named(environment) -> dict[str, Any]:
    """Read process ids from the environment, for clusters that jax does not detect."""
    values = {name: environment[name] for name in NAMES if environment.get(name)}
    if not values:
        return {}
    try:
        address, count, number = (values[name] for name in NAMES)
        if not 0 <= int(number) < int(count) or not address.rpartition(":")[2].isdigit():
            raise ValueError
    except (KeyError, ValueError):
        variables = " ".join(f"{name}={value}" for name, value in values.items())
        raise errors.ConfigError(f"{NEEDS}; got {variables}") from None
    return {
        "coordinator_address": address,
        "num_processes": int(count),
        "process_id": int(number),
        "cluster_detection_method": "deactivate",
    }


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


@contextmanager
def only_lead_speaks() -> Iterator[None]:
    """Discard what the other processes print; errors that end a process are printed outside."""
    if is_lead():
        yield
        return
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


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


def on_host(tree: Any) -> Any:
    """Gather arrays, which may be sharded over the devices of all processes, onto the host."""

    def gathered(leaf) -> np.ndarray:
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            leaf = multihost_utils.process_allgather(leaf, tiled=True)
        return np.array(leaf)  # a copy: the state is donated to the next step

    return jax.tree.map(gathered, tree)


class Stopping:
    """True once any process received a stop signal, at the same step in all processes.

    Votes are sent with one step and read one step later, so that no step waits for them.
    """

    def __init__(self, signals: Sequence[str], mesh: Mesh):
        self.signals = signals
        self.by_device = devices.by_device(mesh)
        self.any = jax.jit(lambda votes: votes.any(), out_shardings=devices.replicated(mesh))
        self.local = mesh.local_mesh.size
        self.sent: jax.Array | None = None

    def __call__(self) -> bool:
        if jax.process_count() == 1:
            return bool(self.signals)
        stop, vote = self.sent, np.full(self.local, bool(self.signals))
        self.sent = self.any(jax.make_array_from_process_local_data(self.by_device, vote))
        return stop is not None and bool(stop)

    @property
    def reason(self) -> str:
        return self.signals[0] if self.signals else "a signal to another process"
