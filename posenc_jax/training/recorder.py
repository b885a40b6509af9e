"""What becomes of each step's numbers, and where a run that has gone wrong is stopped."""

import math
from collections import deque

from posenc_jax import exits
from posenc_jax.data.batches import Batches
from posenc_jax.tracking.wandb_view import View
from posenc_jax.training.report import Report
from posenc_jax.training.run import Metrics


class Recorder:
    """Metrics to the terminal, metrics.jsonl and wandb, one step behind: reading them waits.

    Every step is looked at, since one that is not finite must never be saved; those due are kept.
    """

    def __init__(self, report: Report, metrics: Metrics | None, view: View | None, skipping: bool):
        self.report, self.metrics, self.view = report, metrics, view
        self.skipping = skipping
        self.finite: deque[str] = deque(maxlen=5)  # losses, to be named when one is not
        self.pending: tuple | None = None
        self.line: dict = {}  # of a step, until the next one is on its way
        self.code = exits.IO  # how it ended, for wandb

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None and self.metrics:
            self.metrics.close()
        code = error.code if isinstance(error, exits.Stop) else self.code
        if self.view:
            self.view.finish(code, {"exit_code": code})

    def later(self, at: int, measured: dict, rate: float, rows: Batches) -> None:
        self.pending = (at, measured, rate, rows)

    def validation(self, at: int, values: dict) -> None:
        self._read()  # the step's own numbers and time come first
        self.line |= self.report.validation(at, values)

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
        (at, measured, rate, rows), self.pending = self.pending, None
        values = {name: float(value) for name, value in measured.items()}
        if not all(map(math.isfinite, values.values())):
            self._not_finite(at, values, rows)
        else:
            self.finite.append(f"{values['loss']:.4f} (step {at})")
        if self.report.due(at):
            self.line = self.report.step(at, values, rate)

    def _not_finite(self, at: int, values: dict, rows: Batches) -> None:
        if self.skipping:
            self.report.line(f"step {at} is not finite: {_worded(values)}; skipped")
            return
        raise exits.NotFinite(
            f"step {at} is not finite: {_worded(values)}. The last finite losses: "
            f"{', '.join(self.finite) or 'none'}. Its batch: {rows.describe(at - 1)}. Nothing of "
            "it was saved. A lower learning_rate, a longer warmup_steps or a lower clip may help; "
            "skip_not_finite=True leaves such steps out"
        )


def _worded(values: dict) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items() if name != "skipped")
