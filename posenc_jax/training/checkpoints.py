"""Checkpoints by Orbax, with a digest of every array beside them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from posenc_jax.exits import OtherConfig, Stop
from posenc_jax.training.parts import by_path, with_leaves


class Checkpoints:
    """`checkpoints/<step>/` of a workdir: a plain dictionary of arrays, and what it belongs to."""

    def __init__(self, workdir: Path, *, keep: int | None = None, read_only: bool = False):
        logging.set_verbosity(logging.ERROR)  # orbax warns of what is meant
        self.folder = Path(workdir).absolute() / "checkpoints"
        self.manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                create=not read_only,
                read_only=read_only,
                enable_async_checkpointing=not read_only,
            ),
        )

    def steps(self) -> list[int]:
        self.wait()  # a save in flight would be forgotten by reload, and never be removed later
        self.manager.reload()
        return sorted(self.manager.all_steps())

    def save(self, step: int, state: Any, belongs: dict) -> None:
        """Asynchronous: the arrays are copied now and written while training goes on."""
        arrays = {name: np.asarray(leaf) for name, leaf in by_path(state).items()}
        self.manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(arrays),
                card=ocp.args.JsonSave({"digests": digests(arrays), **belongs}),
            ),
        )

    def card(self, step: int) -> dict:
        return self.manager.restore(step, args=ocp.args.Composite(card=ocp.args.JsonRestore()))[
            "card"
        ]

    def restore(self, step: int, like: Any, sharding: jax.sharding.Sharding) -> Any:
        """The state saved at a step, in the shape of `like`; every array is checked."""
        card = self.card(step)
        wanted = by_path(like)
        saved = card["digests"]
        if set(wanted) != set(saved):
            missing, unknown = sorted(set(wanted) - set(saved)), sorted(set(saved) - set(wanted))
            raise OtherConfig(
                f"checkpoint {step} holds other arrays; missing: {missing}, unknown: {unknown}"
            )
        abstract = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
            for name, leaf in wanted.items()
        }
        restored = self.manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        )["state"]
        for name, digest in digests(restored).items():
            if digest != saved[name]:
                raise Stop(f"checkpoint {step}: {name} is not what was written (digest differs)")
        return with_leaves(like, restored)

    def wait(self) -> None:
        self.manager.wait_until_finished()

    def close(self) -> None:
        self.manager.close()


def digests(arrays: dict[str, Any]) -> dict[str, str]:
    """sha256 over type, shape and bytes of each array."""
    return {name: _digest(np.asarray(leaf)).hexdigest() for name, leaf in arrays.items()}


def total_digest(state: Any) -> str:
    """One digest of a whole state: that of its arrays' digests in the order of their names."""
    table = digests(by_path(state))
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def _digest(array: np.ndarray):
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest
