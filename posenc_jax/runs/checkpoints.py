"""Orbax checkpoints with a digest of every array."""

import asyncio
import errno
import hashlib
import json
import logging
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import absl.logging
import jax
import numpy as np
import orbax.checkpoint as ocp

from posenc_jax.runs import processes
from posenc_jax.runtime.errors import Damaged, OtherConfig, Stop
from posenc_jax.runtime.files import REMEDY
from posenc_jax.runtime.terminal import warn
from posenc_jax.runtime.trees import by_path, with_leaves

MACHINE = {errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
MACHINE_SAYS = "PERMISSION_DENIED", "Permission denied", "RESOURCE_EXHAUSTED", "Out of memory"
STEP = re.compile("0|[1-9][0-9]{0,9}")  # the name of its folder
PARAMETERS = "params"  # of a state, which also has the optimizer's arrays and the step


class Checkpoints:
    """`checkpoints/<step>/` of a workdir: a dictionary of arrays, and a card of facts about them.

    Arrays are saved from the host and restored to it, unsharded.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        keep: int | None = None,
        read_only: bool = False,
    ):
        _quieten_orbax()
        self.folder = Path(workdir).absolute() / "checkpoints"
        self.quarantine = self.folder / "quarantine"
        self.keep, self.read_only = keep, read_only
        self.saving, self.pending = 0, None
        self.writer = ThreadPoolExecutor(1)
        if not read_only:
            if any(word in str(self.folder) for word in ("\\", "**")):
                raise Stop(rf"Orbax saves nothing in {self.folder}: use a path without \ and **")
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
        self._open()

    def _open(self) -> None:
        self.manager = ocp.CheckpointManager(
            self.folder,
            item_handlers=None if self.read_only else _files_of_arrays(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=self.keep,
                create=False,
                read_only=self.read_only,
                enable_async_checkpointing=False,
                multiprocessing_options=_without_others(),
            ),
        )

    def steps(self) -> list[int]:
        return steps_of(self.folder.parent)

    def save(self, step: int, state: Any, belongs: dict) -> None:
        """Hash and write a step in a thread; a failure is raised by the next call.

        Earlier checkpoints are unaffected.
        """
        self.settle()
        self.saving = step
        arrays = {name: np.asarray(leaf) for name, leaf in by_path(state).items()}
        self.pending = self.writer.submit(self._write, step, arrays, belongs)

    def _write(self, step: int, arrays: dict[str, np.ndarray], belongs: dict) -> None:
        card = {"step": step, "digests": digests(arrays), **belongs}
        sealed = ocp.args.JsonSave(card | {"seal": _seal(card)})
        args = ocp.args.Composite(state=ocp.args.StandardSave(arrays), card=sealed)
        with _one_by_one():
            self.manager.save(step, args=args)

    def card(self, step: int) -> dict:
        """Return the facts saved with the arrays, checked by their seal."""
        card = self._read(step, "card", ocp.args.JsonRestore())
        if not isinstance(card, dict) or card.pop("seal", None) != _seal(card):
            raise Damaged(f"checkpoint {step}: its card is not what was written")
        if card["step"] != step:
            raise Damaged(f"checkpoint {step} is a renamed checkpoint of step {card['step']}")
        return card

    def types(self, step: int) -> dict[str, np.dtype]:
        """The types of the arrays of a step, without reading them."""
        place: Any = self.folder / str(step) / "state"
        saved = ocp.StandardCheckpointHandler().metadata(place)
        return {name: np.dtype(one.dtype) for name, one in by_path(saved.tree).items()}

    def restore(
        self, step: int, like: Mapping[str, Any], accept: Callable[[dict], None] = lambda card: None
    ) -> tuple[dict, Any]:
        """Restore the card of a step, and to the host the groups of its state that `like` has.

        Every saved array is checked. `accept` raises if the card does not belong to this run.
        """
        card, wanted = self.card(step), by_path(like)
        accept(card)
        saved = card["digests"]
        grouped = {name for name in saved if name.partition(".")[0] in like}
        if grouped != set(wanted):
            missing, unknown = sorted(set(wanted) - grouped), sorted(grouped - set(wanted))
            raise OtherConfig(
                f"checkpoint {step} has other arrays; missing: {missing}, unknown: {unknown}"
            )
        restored = self._read(step, "state", ocp.args.StandardRestore())  # in their saved shapes
        _check_digests(step, restored, saved)
        shapes = {n: restored[n].shape for n in wanted if restored[n].shape != wanted[n].shape}
        if shapes:
            raise OtherConfig(f"checkpoint {step} has arrays of other shapes: {shapes}")
        return card, with_leaves(like, {name: restored[name] for name in wanted})

    def restore_last(self, like: Any, accept: Callable[[dict], None]) -> tuple[dict, Any] | None:
        """Restore the newest undamaged checkpoint and its card; move damaged ones to quarantine."""
        steps = self.steps()
        for step in reversed(steps):
            try:
                return self.restore(step, like, accept)
            except Damaged as damage:
                place = self.set_aside(step)
                warn(f"{damage}; moved to {place}")
        if steps or self.quarantine.exists():
            raise Stop(
                f"no checkpoint of {self.folder.parent} can be read; they are in {self.quarantine}."
                " Training did not restart: use another --workdir, or delete that folder to start "
                "again here"
            )
        return None

    def set_aside(self, step: int) -> Path:
        """Move a step to quarantine, and reopen the manager so that it can save the step again."""
        self.quarantine.mkdir(exist_ok=True)
        candidates = (self.quarantine / f"{step}{f'-{n}' if n else ''}" for n in range(10_000))
        place = next(path for path in candidates if not path.exists())
        self.manager.close()
        (self.folder / str(step)).rename(place)
        self._open()
        return place

    def _read(self, step: int, item: str, restore_args: Any) -> Any:
        """Read an item of a checkpoint; failures count as damage unless the machine caused them."""
        try:
            with _one_by_one():
                args = ocp.args.Composite(**{item: restore_args})
                return self.manager.restore(step, args=args)[item]
        except Exception as error:
            if _caused_by_machine(error):
                raise
            reason = _first_line(error)
            raise Damaged(f"checkpoint {step}: its {item} cannot be read: {reason}") from error

    def settle(self) -> None:
        """Wait for the pending save; raise Stop if it failed."""
        pending, self.pending = self.pending, None
        try:
            if pending:
                pending.result()
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Stop:
        self._sweep()
        reason = "no space left on device" if _no_space(error) else _first_line(error)
        return Stop(f"step {self.saving} could not be saved: {reason}; {REMEDY}")

    def _sweep(self) -> None:
        """Remove partial checkpoints of failed or killed saves."""
        for path in self.folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        self.settle()
        self.manager.close()
        self.writer.shutdown()


class Saving:
    """Transfer of arrays between devices and checkpoints; all processes make the same calls, and
    the lead reads and writes."""

    def __init__(self, workdir: Path, keep: int):
        self.checkpoints = Checkpoints(workdir, keep=keep) if processes.is_lead() else None
        self.latest = -1  # the last step that was restored or saved
        self.card: dict | None = None  # of the checkpoint that was restored
        self.belongs: dict = {}  # facts about the run, for the cards to come

    def steps(self) -> list[int]:
        """The complete steps on disk; none in processes other than the lead."""
        return self.checkpoints.steps() if self.checkpoints else []

    def settle(self) -> None:
        if self.checkpoints:
            self.checkpoints.settle()

    def save(self, step: int, state: Any) -> None:
        arrays = {}
        for name, leaf in by_path(state).items():
            whole = processes.on_host(leaf)
            if self.checkpoints:
                arrays[name] = np.array(whole)  # a copy: the state is donated to the next step
        if self.checkpoints:
            self.checkpoints.save(step, arrays, self.belongs)
        self.latest = step

    def restore_last(
        self, shapes: Any, shardings: Any, accept: Callable[[dict], None]
    ) -> tuple[int, Any] | None:
        """Return the step and state to resume from; None: there is no checkpoint."""
        state = shapes
        if self.checkpoints:
            self.card, state = self.checkpoints.restore_last(shapes, accept) or (None, shapes)
        step = self.card["step"] if self.card else -1
        self.latest = int(processes.arrays_of_lead(np.int32(step)))
        return None if self.latest < 0 else (self.latest, processes.placed(state, shardings))

    def close(self) -> None:
        if self.checkpoints:
            self.checkpoints.close()


def steps_of(workdir: Path) -> list[int]:
    """The steps with a complete checkpoint in a workdir; pending saves have a temporary name."""
    names = (path.name for path in (workdir / "checkpoints").glob("*"))
    return sorted(int(name) for name in names if STEP.fullmatch(name))


def _without_others() -> ocp.options.MultiprocessingOptions:
    """Save and restore without waiting for other processes; only the lead saves."""
    own = jax.process_index()
    return ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})


def _files_of_arrays() -> dict[str, Any]:
    """Handlers that write a file per array; else all are encoded before one file is written."""
    state = ocp.StandardCheckpointHandler(use_ocdbt=False)
    return {"state": state, "card": ocp.JsonCheckpointHandler()}


class _OneByOne(ocp.type_handlers.NumpyHandler):
    """Writes and reads one array after another; else all are copied, encoded or decoded at once,
    which takes the memory of one or two more states."""

    def __init__(self):
        super().__init__(deepcopy_host_arrays=False)

    async def _open_and_write(self, value, tspec, ts_context):
        async with self.turn:
            await super()._open_and_write(value, tspec, ts_context)

    async def _background_serialize(self, values, infos, args=None):
        self.turn = asyncio.Lock()
        await super()._background_serialize(values, infos, args)

    async def deserialize(self, infos, args=None):
        """The largest first: what decoding it took is room for the others."""
        sizes = [-math.prod(one.shape) for one in await self.metadata(infos)]
        args, read = args or [ocp.RestoreArgs()] * len(infos), {}
        for i in sorted(range(len(infos)), key=sizes.__getitem__):
            (read[i],) = await super().deserialize([infos[i]], [args[i]])
        return [read[i] for i in range(len(infos))]


@contextmanager
def _one_by_one() -> Iterator[None]:
    usual = ocp.type_handlers.get_type_handler(np.ndarray)
    register = partial(ocp.type_handlers.register_type_handler, np.ndarray, override=True)
    register(_OneByOne())
    try:
        yield
    finally:
        register(usual)


def _quieten_orbax() -> None:
    """Keep Orbax's logs and threads silent: a failed save is reported in one line instead.

    After a failed write its other writers report to an event loop that is already closed.
    """
    absl.logging.set_verbosity(absl.logging.FATAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    sys.unraisablehook = _show_unless_closed


def _show_unless_closed(raised: Any) -> None:
    if str(raised.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(raised)


def _check_digests(step: int, restored: dict[str, Any], saved: dict[str, str]) -> None:
    found = digests(restored)
    for name in found | saved:
        if found.get(name) != saved.get(name):
            raise Damaged(f"checkpoint {step}: {name} is not what was written (digest differs)")


def _caused_by_machine(error: BaseException | None) -> bool:
    """True if the machine caused a failure, not the files: permissions, memory, handles."""
    if error is None:
        return False
    return (
        isinstance(error, MemoryError)
        or getattr(error, "errno", None) in MACHINE
        or any(word in str(error) for word in MACHINE_SAYS)
        or _caused_by_machine(error.__cause__)
    )


def _no_space(error: BaseException) -> bool:
    return getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def digests(arrays: dict[str, Any]) -> dict[str, str]:
    """Hash each array's type, shape and bytes with sha256, one array after another."""
    return {name: _digest(processes.on_host(leaf)).hexdigest() for name, leaf in arrays.items()}


def total_digest(state: Any) -> str:
    """Return the digest of a state: sha256 of its arrays' digests, sorted by name."""
    return _seal(digests(by_path(state)))


def saved_digest(card: Mapping[str, Any]) -> str:
    """Return the `total_digest` of a checkpoint's state, from its card."""
    return _seal(card["digests"])


def _seal(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _digest(array: np.ndarray):
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # not a copy
    return digest
