"""Checkpoints during training, which the lead reads and writes for all processes."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from posenc_jax.runs import processes
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.workdir import Workdir


class Saving:
    """Transfer of arrays between devices and checkpoints; all processes make the same calls."""

    def __init__(self, run: Workdir, keep: int):
        self.checkpoints = Checkpoints(run.path, keep=keep) if processes.is_lead() else None
        self.saved = -1  # the last step that was restored or saved

    def steps(self) -> list[int]:
        """The steps on disk, once they are complete; none in processes other than the lead."""
        return self.checkpoints.steps() if self.checkpoints else []

    def save(self, step: int, state: Any, belongs: dict) -> None:
        state = processes.on_host(state)
        if self.checkpoints:
            self.checkpoints.save(step, state, belongs)
        self.saved = step

    def last(self) -> int:
        return self.checkpoints.last() if self.checkpoints else 0

    def restore_last(
        self, fresh: Any, shardings: Any, accept: Callable[[int, dict], None]
    ) -> tuple[int, Any]:
        """Return the step and state to resume from, or 0 and the lead's `fresh` state."""
        step, state = -1, processes.on_host(fresh)
        if self.checkpoints:
            step, state = self.checkpoints.restore_last(state, accept) or (step, state)
        step, state = processes.arrays_of_lead((np.int32(step), state))
        self.saved = int(step)
        # A copy of the host's memory: the state is donated to each step.
        return max(self.saved, 0), jax.device_put(state, shardings, may_alias=False)

    def close(self) -> None:
        if self.checkpoints:
            self.checkpoints.close()
