"""Several processes of one program: all compute, and the lead writes.

Calls that may fail in one process go through `all_or_none`, so that all end with the same error.
"""

import json
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from posenc_jax import errors
from posenc_jax.config import Evaluation, Training, schema
from posenc_jax.config.compare import differences_of_fields
from posenc_jax.runtime import devices
from posenc_jax.terminal import code_of, say

T = TypeVar("T")
NAMES = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
NEEDS = (
    f"distributed=True needs {', '.join(NAMES)}, such as 10.0.0.1:1234, 2 and 0 or 1, or none of "
    "them on a cluster that jax detects: SLURM, Open MPI, a TPU pod"
)
SHUTDOWN_SECONDS = 30  # processes wait this long for each other at the end


@contextmanager
def joined(distributed: bool) -> Iterator[None]:
    """Connect the processes of a run; must precede any computation by jax."""
    if not distributed:
        yield
        return
    try:
        jax.distributed.initialize(**_named(os.environ), shutdown_timeout_seconds=SHUTDOWN_SECONDS)
    except (ValueError, RuntimeError) as error:
        raise errors.ConfigError(f"{NEEDS}; jax says: {error}") from error
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, errors.Stop) and error.ends_all):
            _exit_now(error)
        jax.distributed.shutdown()
        raise
    jax.distributed.shutdown()


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


def _exit_now(error: BaseException) -> None:
    """Exit immediately, since the other processes wait for messages that will not come."""
    if isinstance(error, errors.Stop | OSError | KeyboardInterrupt):
        code = code_of(lambda: _raise(error))
    else:
        say("".join(traceback.format_exception(error)), error=True)
        say(
            f"error: process {jax.process_index()} of {jax.process_count()} ends. If another one "
            "ended before, see its output; the same commands resume from the last save",
            error=True,
        )
        code = errors.FAULT
    os._exit(code)


def _raise(error: BaseException) -> NoReturn:
    raise error


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


def all_or_none(call: Callable[[], T]) -> T:
    """Call a function in every process; if one fails, all end with its error."""
    if jax.process_count() == 1:
        return call()
    result, failure = None, None
    try:
        result = call()
    except errors.Stop as stop:
        failure = stop
    except OSError as error:
        failure = errors.Stop(str(error))
    reasons = _exchange([type(failure).__name__, str(failure)] if failure else None)
    for reason in reasons:
        if reason is not None:
            raise of_all(getattr(errors, reason[0])(reason[1])) from failure
    return result  # pyright: ignore[reportReturnType]


def of_all(stop: errors.Stop) -> errors.Stop:
    """Mark an error that every process raises, so that all end with it."""
    stop.ends_all = True
    return stop


def by_lead(call: Callable[[], T]) -> T:
    """Call a function in the lead, and return its JSON-compatible result in every process."""
    result = all_or_none(lambda: call() if is_lead() else None)
    return _exchange(result)[0]


def _exchange(value: Any) -> list:
    """Return the values of all processes in their order."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = np.ravel(multihost_utils.process_allgather(np.int32(len(text))))
    padded = np.zeros(sizes.max(), np.uint8)
    padded[: len(text)] = text
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def same_configuration(config: Training | Evaluation) -> None:
    """Refuse processes started by different commands, which would wait for each other."""
    every = _exchange(schema.as_fields(config))
    for number, fields in enumerate(every):
        words = ("in process 0", f"in process {number}")
        lines = differences_of_fields(every[0], fields, ("data.cache", "wandb"), words)
        if lines:
            raise of_all(
                errors.ConfigError(
                    "all processes must be given the same configuration:\n  " + "\n  ".join(lines)
                )
            )


def agree(value: Any, what: str) -> None:
    """Reject processes that have different values."""
    values = _exchange(value)
    if any(other != values[0] for other in values):
        raise of_all(errors.DataError(f"{what} differs between the processes: {values}"))


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
