"""Checkpoints by Orbax, with a digest of every array."""

import contextlib
import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from posenc_jax.errors import Damaged, OtherConfig, Stop
from posenc_jax.files import NO_PERMISSION, NO_RESOURCES, caused_by, causes
from posenc_jax.runs.parameters import by_path, with_leaves
from posenc_jax.terminal import warn

PARAMETERS = "params"  # of a state; beside them stand the optimizer's arrays and the step

# Of several processes one saves and restores, and waits for no other.
LEAD_ALONE = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})


class Checkpoints:
    """`checkpoints/<step>/` of a workdir: a plain dictionary of arrays, and what it belongs to.

    Arrays are saved from the host and restored to it, whole.
    """

    def __init__(self, workdir: Path, *, keep: int | None = None, read_only: bool = False):
        logging.set_verbosity(logging.FATAL)  # we report in one line what orbax logs
        self.folder = Path(workdir).absolute() / "checkpoints"
        self.quarantine = self.folder / "quarantine"
        self.keep, self.read_only = keep, read_only
        self.saving = 0
        if not read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
        self._open()

    def _open(self) -> None:
        self.manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=self.keep,
                create=False,
                read_only=self.read_only,
                enable_async_checkpointing=not self.read_only,
                multiprocessing_options=LEAD_ALONE,
            ),
        )

    def steps(self) -> list[int]:
        self.settle()  # a save in flight would be forgotten by reload, and never be removed later
        self.manager.reload()
        return sorted(self.manager.all_steps())

    def last(self) -> int:
        """The newest step on disk under its final name, which a save in flight lacks."""
        names = [path.name for path in self.folder.iterdir()]
        return max((int(name) for name in names if name.isdigit()), default=0)

    def save(self, step: int, state: Any, belongs: dict) -> None:
        """Save a step asynchronously, while training goes on.

        A failed save is reported and given up; earlier checkpoints stay as they are.
        """
        self.settle()
        arrays = {name: np.asarray(leaf) for name, leaf in by_path(state).items()}
        card = {"step": step, "digests": digests(arrays), **belongs}
        self.saving = step
        try:
            self.manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(arrays),
                    card=ocp.args.JsonSave(card | {"seal": _seal(card)}),
                ),
            )
        except Exception as error:
            self._give_up(error)

    def card(self, step: int) -> dict:
        """The facts saved beside the arrays, checked by their seal."""
        card = self._read(step, "card", ocp.args.JsonRestore())
        if not isinstance(card, dict) or card.pop("seal", None) != _seal(card):
            raise Damaged(f"checkpoint {step}: its card is not what was written")
        if card["step"] != step:
            raise Damaged(f"checkpoint {step} is that of step {card['step']} by another name")
        return card

    def restore(self, step: int, like: Any) -> Any:
        """The state of a step, in the shape of `like`, on the host; every array is checked."""
        saved = self.card(step)["digests"]
        wanted = by_path(like)
        _same_names(step, wanted, saved)
        abstract = {  # Orbax returns numpy for numpy
            name: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
            for name, leaf in wanted.items()
        }
        restored = self._read(step, "state", ocp.args.StandardRestore(abstract))
        _check_digests(step, restored, saved)
        return with_leaves(like, restored)

    def parameters(self, step: int, like: Any) -> Any:
        """The parameters of a step, without the optimizer state, which is checked too."""
        saved = self.card(step)["digests"]
        wanted = by_path({PARAMETERS: like})
        _same_names(step, wanted, [n for n in saved if n.partition(".")[0] == PARAMETERS])
        restored = self._read(step, "state", ocp.args.StandardRestore())  # in the shapes saved
        if set(restored) != set(saved):
            raise Damaged(f"checkpoint {step}: its arrays are not those that were written")
        _check_digests(step, restored, saved)
        shapes = {n: restored[n].shape for n in wanted if restored[n].shape != wanted[n].shape}
        if shapes:
            raise OtherConfig(f"checkpoint {step} holds arrays of other shapes: {shapes}")
        return with_leaves({PARAMETERS: like}, {n: restored[n] for n in wanted})[PARAMETERS]

    def restore_last(
        self, like: Any, accept: Callable[[int, dict], None]
    ) -> tuple[int, Any] | None:
        """Restore the newest undamaged checkpoint, with its step; damaged ones are set aside.

        `accept` first checks that a card belongs to this run, and raises where it does not.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                accept(step, self.card(step))
                return step, self.restore(step, like)
            except Damaged as damage:
                place = self.set_aside(step)
                warn(f"{damage}; moved to {place}")
        if steps or self.quarantine.exists():
            raise Stop(
                f"no checkpoint of {self.folder.parent} can be read; they are in {self.quarantine}."
                " Nothing was started anew: take another --workdir, or delete that folder to begin "
                "again here"
            )
        return None

    def set_aside(self, step: int) -> Path:
        """Move a step to quarantine; the manager must forget it, or would not save it again."""
        self.quarantine.mkdir(exist_ok=True)
        tries = (self.quarantine / f"{step}{f'-{n}' if n else ''}" for n in range(10_000))
        place = next(path for path in tries if not path.exists())
        self.manager.close()
        (self.folder / str(step)).rename(place)
        self._open()
        return place

    def _read(self, step: int, item: str, how: Any) -> Any:
        """Read an item of a checkpoint; a failure is damage unless the machine caused it."""
        try:
            return self.manager.restore(step, args=ocp.args.Composite(**{item: how}))[item]
        except Exception as error:
            if _of_the_machine(error):
                raise
            reason = _first_line(error)
            raise Damaged(f"checkpoint {step}: its {item} cannot be read: {reason}") from error

    def settle(self) -> None:
        """Wait for the save in flight and report it if it failed."""
        try:
            self.manager.wait_until_finished()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        reason = "no space left on device" if _no_space(error) else _first_line(error)
        warn(
            f"step {self.saving} could not be saved: {reason}; training goes on, earlier "
            "checkpoints are whole, and the next save is tried as planned"
        )
        # The manager forgot what it was about to remove, so it must read the folder again.
        with contextlib.suppress(Exception):
            self.manager.close()
        self._sweep()
        self._open()

    def _sweep(self) -> None:
        """Remove what a failed or killed save left half written."""
        for path in self.folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        self.settle()
        self.manager.close()


def _same_names(step: int, wanted: Iterable[str], saved: Iterable[str]) -> None:
    missing, unknown = sorted(set(wanted) - set(saved)), sorted(set(saved) - set(wanted))
    if missing or unknown:
        raise OtherConfig(
            f"checkpoint {step} holds other arrays; missing: {missing}, unknown: {unknown}"
        )


def _check_digests(step: int, restored: dict[str, Any], saved: dict[str, str]) -> None:
    for name, digest in digests(restored).items():
        if digest != saved[name]:
            raise Damaged(f"checkpoint {step}: {name} is not what was written (digest differs)")


def _of_the_machine(error: BaseException) -> bool:
    """Whether the machine caused a failure, not the files: permission, memory, handles."""
    words = ("PERMISSION_DENIED", "Permission denied", "RESOURCE_EXHAUSTED", "Out of memory")
    return caused_by(error, NO_PERMISSION | NO_RESOURCES) or any(
        isinstance(cause, MemoryError) or any(word in str(cause) for word in words)
        for cause in causes(error)
    )


def _no_space(error: BaseException) -> bool:
    return getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def digests(arrays: dict[str, Any]) -> dict[str, str]:
    """sha256 of each array: type, shape and bytes."""
    return {name: _digest(np.asarray(leaf)).hexdigest() for name, leaf in arrays.items()}


def total_digest(state: Any) -> str:
    """Digest of a whole state: sha256 over its arrays' digests in the order of their names."""
    return _seal(digests(by_path(state)))


def saved_digest(card: Mapping[str, Any]) -> str:
    """`total_digest` of the state that a checkpoint holds, from its card."""
    return _seal(card["digests"])


def _seal(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _digest(array: np.ndarray):
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest
