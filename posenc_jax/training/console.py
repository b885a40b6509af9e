"""Print the start-up summary and a line per logged step; record each step's metrics."""

import math
import platform
import resource
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from posenc_jax.composition import with_scale
from posenc_jax.config import Training, trained
from posenc_jax.config.compare import changed
from posenc_jax.config.resolve import original_length, reached, saved_config
from posenc_jax.runs.metrics import Metrics
from posenc_jax.runs.workdir import Workdir, data_facts, data_in_words
from posenc_jax.runtime import errors
from posenc_jax.runtime.terminal import clock, counted, warn
from posenc_jax.tracking.wandb import View
from posenc_jax.training import optimizer

# Dense bfloat16 operations per second of one device, accumulated in float32, by jax's device name;
# for MFU. Sources: NVIDIA's data sheets and white papers of its GeForce and RTX cards, halved if
# they include sparsity, and Google's pages and papers on each TPU. On TPU v2, v3 and v7 a device is
# one of a chip's two cores. Other devices, including MIG slices, have no MFU.
PEAK_FLOPS = {
    "NVIDIA A10": 125e12,
    "NVIDIA A10G": 70e12,
    "NVIDIA A30": 165e12,
    "NVIDIA A40": 149.7e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA L4": 121e12,
    "NVIDIA L40": 181e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835.5e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA H200 NVL": 835.5e12,
    "NVIDIA GH200 120GB": 989e12,
    "NVIDIA GH200 144G HBM3e": 989e12,
    "NVIDIA GH200 480GB": 989e12,
    "NVIDIA B200": 2_250e12,
    "NVIDIA B300 SXM6 AC": 2_250e12,
    "NVIDIA GB200": 2_500e12,
    "NVIDIA GB300": 2_500e12,
    "NVIDIA GeForce RTX 3090": 71e12,
    "NVIDIA GeForce RTX 4090": 165.2e12,
    "NVIDIA GeForce RTX 5090": 209.5e12,
    "NVIDIA RTX A6000": 154.8e12,
    "NVIDIA RTX 6000 Ada Generation": 364.2e12,
    "TPU v2": 22.5e12,
    "TPU v3": 61.5e12,
    "TPU v4 lite": 138e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "TPU7x": 1_153.5e12,
}


class Report:
    """Lines of a run for the terminal and log.txt, from the step where it starts or resumes."""

    def __init__(self, run: Workdir, config, parts, step: int, frozen: Mapping[str, Any]):
        self.line = run.say
        peak = PEAK_FLOPS.get(jax.devices()[0].device_kind)
        self.peak = peak and peak * len(jax.devices())
        # A frozen matrix has no gradient: 4 a weight instead of 6.
        matrices = [
            leaf.size
            for name, leaf in frozen.items()
            if name.endswith(".kernel") or (config.model.tied and name == "embed.embedding")
        ]
        self.flops = parts.model.flops_per_token(config.train_length) - 2 * sum(matrices)
        self.first, self.began = step, time.perf_counter()
        self.total, self.every = config.steps, config.log_every
        self.tokens = config.batch_size * config.train_length
        self.previous = (step, self.began)

    def due(self, step: int) -> bool:
        return step % self.every == 0 or step == self.total

    def step(self, step: int, values: dict, rate: float) -> dict:
        time_now = time.perf_counter()
        steps, seconds = step - self.previous[0], time_now - self.previous[1]
        self.previous = (step, time_now)
        speed = steps * self.tokens / max(seconds, 1e-9)
        use = self.peak and speed * self.flops / self.peak
        left = (self.total - step) * (time_now - self.began) / max(step - self.first, 1)
        self.line(
            f"step {step:>{len(str(self.total))}}/{self.total}  loss {values['loss']:.4f}  "
            f"{_bits(values.get('bpb'))}gradient {values['grad_norm']:.3f}  "
            f"rate {rate:.2e}  {speed:,.0f} tokens/s  "
            f"{f'MFU {use:.1%}  ' if use else ''}{clock(left)} left"
        )
        return {
            "step": step,
            "tokens": step * self.tokens,
            "bpb": None,  # unless measured
            **values,
            "learning_rate": rate,
            "tokens_per_second": speed,
            "mfu": use,
            "memory_mib": peak_memory(),
            "time": time.time(),
        }

    def validation(self, step: int, values: dict) -> dict:
        parts = (
            f"{word}: loss {values[f'{name}_loss']:.4f}  {_bits(values[f'{name}_bpb'])}"
            for name, word in (("valid", "held out"), ("choose", "to choose on"))
            if f"{name}_loss" in values
        )
        self.line(f"step {step}  {''.join(parts).rstrip()}")
        self.previous = (step, time.perf_counter())
        return {"step": step, **values}


def _bits(per_byte: float | None) -> str:
    """Format bits per byte; empty for None, if the tokenizer is not lossless."""
    return "" if per_byte is None else f"bits/byte {per_byte:.4f}  "


def peak_memory() -> float:
    """Return peak memory in MiB: of the first device if it reports it, else of the process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats:
        return stats["peak_bytes_in_use"] / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )


def _clipped(config) -> str:
    """Note a warm-up that is shorter than configured."""
    warmup = optimizer.warmup_of(config)
    if warmup == config.warmup_steps:
        return ""
    steps = counted(warmup, "step")
    return f"; warm-up shortened to {steps}, a tenth (warmup_steps = {config.warmup_steps})"


def first_screen(config, parts, corpus, mesh, step: int) -> str:
    """Summarise model, data, devices and plan; config.json has every field."""
    counts = ", ".join(f"{name} {count:,}" for name, count in parts.counts().items())
    planned = config.steps * config.batch_size * config.train_length
    versions = ", ".join(f"{n} {version(n)}" for n in ("jax", "flax", "optax", "orbax-checkpoint"))
    devices = ", ".join(sorted({d.device_kind for d in mesh.devices.flat}))
    splits = corpus.card["splits"]
    train, held_out = splits["train"], splits["valid"]["documents"]
    kept = f"{counted(held_out, 'document')} held out"
    if not held_out:
        kept = "NO document held out, no validation: more files, or a larger data.valid_fraction"
    if splits["choose"]["documents"]:
        kept += f"; {splits['choose']['documents']:,} to choose on"
    if not corpus.lossless:
        kept += "; no bits per byte, the tokenizer is not lossless"
    begin = f"resuming at step {step:,}" if step else "a fresh run"
    if config.init_from and not step:
        begin += f", weights from {config.init_from}{_extended(config)}"
    return "\n".join(
        [
            f"python {platform.python_version()}, {versions}",
            f"{mesh.size} x {devices} ({jax.default_backend()})",
            "",
            *textwrap.wrap(
                " ".join(changed(config)), 80, break_long_words=False, break_on_hyphens=False
            ),
            f"parameters: {counts}{_of_them_trained(config, parts)}",
            f"data {data_in_words(data_facts(corpus, config.train_length))}; {kept}",
            f"plan: {counted(config.steps, 'step')} of {config.batch_size} x {config.train_length} "
            f"tokens, {planned:,} in all ({planned / train['tokens']:.2f} epochs)"
            f"{_clipped(config)}",
            f"{begin}; {' '.join(sys.argv)}",
            "",
        ]
    )


def _of_them_trained(config: Training, parts) -> str:
    own, frozen = jax.eval_shape(partial(trained.split, config=config), parts.params())
    trains = sum(leaf.size for leaf in jax.tree.leaves(own))
    return f", {trains:,} of them trained" if frozen else ""


def _extended(config: Training) -> str:
    """What becomes of the extension of the run whose weights are taken; scales count from L."""
    before, now = saved_config(Path(config.init_from)).extension, config.extension
    if now.name == "none":
        return ""
    was, name = (
        with_scale(one.name, one.scale) if one.scale != 1 else one.name for one in (before, now)
    )
    change = f"whose {was} is replaced by {name}"
    if before.name == "none":
        change = f"extended by {name}"
    elif now == before:
        change = f"whose {name} stays"
    if now.scale == 1:
        return f", {change}"
    scale, original = f"{now.scale:g}", original_length(config)
    length = reached(now.scale, original)
    return f", {change}: {scale} x L = {scale} x {original:,} = {length:,} tokens"


class Recorder:
    """Writer of metrics to terminal, metrics.jsonl and wandb, one step late to avoid waiting.

    Every step is checked, so that only finite ones are saved; every `log_every`-th is written.
    """

    def __init__(
        self,
        report: Report,
        metrics: Metrics | None,
        view: View | None,
        rate: Callable[[int], ArrayLike],
        lossless: bool,  # False: no bits per byte
    ):
        self.report, self.metrics, self.view = report, metrics, view
        self.rate, self.lossless = rate, lossless
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

    def record(self, step: int, measured: dict) -> None:
        self.pending = (step, measured)

    def validation(self, step: int, values: dict) -> None:
        self._read()  # the step's metrics come first
        self.line |= self.report.validation(step, values)

    def flush(self) -> None:
        self._read()
        if self.line:
            if self.metrics:
                self.metrics.write(self.line)
            if self.view:
                self.view.log({f"train/{name}": value for name, value in self.line.items()})
            self.line = {}

    def _read(self) -> None:
        if self.pending is None:
            return
        (step, measured), self.pending = self.pending, None
        values = {name: float(value) for name, value in measured.items()}
        if not self.lossless:
            del values["bpb"]
        if not all(map(math.isfinite, values.values())):
            raise self._not_finite(step, values)
        self.finite.append(f"{values['loss']:.4f} (step {step})")
        if self.report.due(step):
            self.line = self.report.step(step, values, float(np.asarray(self.rate(step - 1))))

    def _not_finite(self, step: int, values: dict) -> errors.NotFinite:
        worded = ", ".join(f"{name} {value:g}" for name, value in values.items())
        return errors.NotFinite(
            f"step {step} is not finite: {worded}. "
            f"The last finite losses: {', '.join(self.finite) or 'none'}. It was not "
            "saved. A lower learning_rate, a longer warmup_steps or a lower clip may help: use "
            "another --workdir, and init_from for the weights of this one"
        )
