"""Record each step's metrics, and stop a run with a loss that is not finite."""

import math
from collections import deque
from collections.abc import Callable

import numpy as np
from jax.typing import ArrayLike

from posenc_jax import errors
from posenc_jax.data.batches import Batches, MixedBatches
from posenc_jax.runs.metrics import Metrics
from posenc_jax.terminal import warn
from posenc_jax.tracking.wandb import View
from posenc_jax.training.report import Report

SKIPS = 100  # consecutive steps that are not finite, after which a run ends


class Recorder:
    """Writer of metrics to terminal, metrics.jsonl and wandb, one step late to avoid waiting.

    Every step is checked, so that only finite ones are saved; every `log_every`-th is written.
    """

    def __init__(
        self,
        report: Report,
        metrics: Metrics | None,
        view: View | None,
        *,
        skipping: bool,
        lossless: bool,  # False: no bits per byte
    ):
        self.report, self.metrics, self.view = report, metrics, view
        self.skipping, self.lossless = skipping, lossless
        self.facts: dict = {}  # for status.json
        self.in_a_row = 0  # consecutive skipped steps
        self.finite: deque[str] = deque(maxlen=5)  # last finite losses, for the error message
        self.pending: tuple | None = None
        self.line: dict = {}  # metrics of a step until the next one is dispatched
        self.code = errors.IO  # exit code, for wandb

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind, error, trace) -> None:
        code = error.code if isinstance(error, errors.Stop) else self.code
        try:
            if self.view:
                self.view.finish(code, {"exit_code": code})
        except errors.Stop as stop:  # wandb is required and failed
            if error is None:
                raise
            warn(str(stop))

    def later(
        self,
        step: int,
        measured: dict,
        rate: Callable[[int], ArrayLike],
        rows: Batches | MixedBatches,
    ) -> None:
        self.pending = (step, measured, rate, rows)

    def validation(self, step: int, values: dict) -> None:
        self._read()  # the step's metrics come first
        self.line |= self.report.validation(step, values)

    def flush(self) -> None:
        self._read()
        if self.line:
            if self.metrics:
                self.metrics.write(self.line)
            if self.view:
                self.view.log(self.line)
            self.line = {}

    def _read(self) -> None:
        if self.pending is None:
            return
        (step, measured, rate, rows), self.pending = self.pending, None
        values = {name: float(value) for name, value in measured.items()}
        if not self.lossless:
            del values["bpb"]
        finite = all(map(math.isfinite, values.values()))
        # The schedule does not advance on skipped steps.
        applied = step - int(values.get("skipped", 0)) - finite
        if finite:
            self.finite.append(f"{values['loss']:.4f} (step {step})")
            self.in_a_row = 0
        else:
            self._not_finite(step, values, rows)
        if self.skipping:
            self.facts["skipped"] = int(values["skipped"])
        if self.report.due(step):
            self.line = self.report.step(step, values, float(np.asarray(rate(applied))))

    def _not_finite(self, step: int, values: dict, rows: Batches | MixedBatches) -> None:
        self.in_a_row += 1
        if self.skipping and self.in_a_row < SKIPS:
            self.report.line(f"step {step} is not finite: {_worded(values)}; skipped")
            return
        raise errors.NotFinite(
            f"step {step} is not finite: {_worded(values)}. "
            + (f"Neither are the {SKIPS - 1} before it. " if self.skipping else "")
            + f"The last finite losses: {', '.join(self.finite) or 'none'}. Its batch: "
            f"{rows.describe(step - 1)}. It was not saved. A lower learning_rate, a longer "
            "warmup_steps or a lower clip may help, or skip_not_finite=True, which skips "
            "such steps: use another --workdir, and init_from for the weights of this one"
        )


def _worded(values: dict) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items() if name != "skipped")
