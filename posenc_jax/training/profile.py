"""Trace training steps by jax.profiler into a run's folder `profile`, which xprof reads."""

from typing import Any

import jax

from posenc_jax.config import Training, schema
from posenc_jax.runs.workdir import Workdir


class Profile:
    """The trace of a run."""

    def __init__(self, config: Training, run: Workdir):
        self.steps = schema.profiled(config.profile) or range(0)
        self.folder, self.writes, self.tracing = run / "profile", run.writes, False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *error: object) -> None:
        if self.tracing:
            self.tracing = False
            jax.profiler.stop_trace()

    def begin(self, step: int) -> None:
        if step in self.steps and self.writes and not self.tracing:
            self.tracing = True
            jax.profiler.start_trace(self.folder)

    def end(self, step: int, state: Any) -> None:
        """Stop after the last step, once it is computed."""
        if self.tracing and step == self.steps[-1]:
            jax.block_until_ready(state)
            self.__exit__()
