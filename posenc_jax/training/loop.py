"""The training loop: what is done at each step, and what a run leaves behind."""

import functools
import math
import shutil
import sys
from collections import deque
from contextlib import closing
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from posenc_jax import backend, exits
from posenc_jax.configuration import Config, original_length
from posenc_jax.data import corpus as corpora
from posenc_jax.data.batches import Batch, Batches, held_out
from posenc_jax.tracking.wandb_view import TrainingView, View
from posenc_jax.training import optimizer as optimizers
from posenc_jax.training import parts as making
from posenc_jax.training import step as steps
from posenc_jax.training.checkpoints import Checkpoints, total_digest
from posenc_jax.training.guard import hold, stop_requests
from posenc_jax.training.load import load_parts
from posenc_jax.training.report import Report, first_screen
from posenc_jax.training.run import Metrics, Workdir, refuse_another


def train(config: Config, workdir: Path) -> int:
    """Trains, or goes on training, the run of a workdir; the exit code."""
    run = Workdir(workdir)
    config = take_over(config, run.config())
    making.check(config)  # before anything is written: a mistake must not claim the workdir
    _check_rows(config, len(jax.devices()))
    run.create()
    with hold(run.path, "another training run"), stop_requests() as stopping:
        backend.self_test()
        corpus = corpora.prepare(config.data, config.seed, stopping=stopping)
        config = with_vocab(config, corpus.vocab)
        with closing(Checkpoints(run.path, keep=config.keep)) as checkpoints:
            _check_steps(config, checkpoints.steps())
            run.claim(config)
            with run.explained():
                return _train(config, run, corpus, checkpoints, stopping)


def take_over(config: Config, begun: Config | None) -> Config:
    """With `init_from`, the length that its encoding was built for goes on."""
    if not config.init_from or config.original_length:
        return config
    source = begun or Workdir(config.init_from).config()
    config = config.copy_and_resolve_references()
    config.original_length = original_length(config, source)
    return config


def with_vocab(config: Config, vocab: int) -> Config:
    if config.model.vocab is not None and config.model.vocab < vocab:
        raise exits.DataError(
            f"model.vocab = {config.model.vocab} is less than the {vocab} tokens of the tokenizer"
        )
    config = config.copy_and_resolve_references()
    config.model.vocab = config.model.vocab or vocab
    return config


def _train(config, run: Workdir, corpus, checkpoints: Checkpoints, stopping) -> int:
    mesh = steps.make_mesh()
    place = steps.replicated(mesh)

    def accept(step: int, card: dict) -> None:
        refuse_another(ConfigDict(card["config"]), config, f"checkpoint {step} of {run.path}")
        _same_data(card, corpus)

    parts = making.make(config) if checkpoints.steps() else starting_parts(config)
    fresh = steps.fresh_state(parts, optimizers.make(config))
    state = jax.device_put(fresh, steps.state_shardings(fresh, mesh, config.sharding))
    at, state = checkpoints.restore_last(state, place, accept) or (0, state)
    check_space(run.path, state, config.keep)
    belongs = {"data": corpus.fingerprint, "config": config.to_dict()}
    save = functools.partial(checkpoints.save, belongs=belongs)
    with closing(Report(run, first_screen(config, parts, corpus, mesh, at))) as report:
        if at >= config.steps:
            return _done(run, report, at, state, "already done")
        run.status("running", exits.AGAIN, step=at)
        report.start(at, config, parts)
        metrics, view = Metrics(run / "metrics.jsonl", at), TrainingView(config, run.path)
        with Recorder(report, metrics, view, skipping=config.skip_not_finite) as record:
            at, state = _steps(config, parts, corpus, mesh, save, record, at, state, stopping)
            if at not in checkpoints.steps():
                save(at, state)
            if at not in checkpoints.steps():
                raise exits.Stop(
                    f"the last step, {at}, could not be saved in {run.path}; make room or give "
                    "back the right to write there, then run the same command: it goes on from "
                    f"step {max(checkpoints.steps(), default=0)}"
                )
            record.code = exits.DONE if at == config.steps else exits.AGAIN
        if at == config.steps:
            return _done(run, report, at, state, "done")
        why = stopping[0] if stopping else "stop_at"
        report.line(f"stopped by {why}: saved step {at}; the same command goes on")
        run.status("stopped", exits.AGAIN, step=at, signal=why)
        return exits.AGAIN


def _steps(config, parts, corpus, mesh, save, record, at, state, stopping):
    """From step `at` to the last one, or to where a signal asks to stop."""
    train_step = steps.train_step(parts, optimizers.make(config), config, mesh)
    validate = Validation(config, parts, corpus, mesh)
    rate = optimizers.schedule(config)
    rows = Batches(
        corpus.train,
        length=config.train_length,
        batch_size=config.batch_size,
        seed=config.seed,
        within_documents=config.data.mask_documents,
    )
    # A stop that lies behind is past: the same command goes on.
    last = min(config.steps, config.stop_at) if config.stop_at > at else config.steps
    while at < last and not stopping:
        state, measured = train_step(state, rows.batch(at))
        at += 1
        record.flush()  # the step before, now that this one is on its way
        record.later(at, measured, float(np.asarray(rate(at - 1))), rows)
        if validate.due(at):
            record.validation(at, validate(state["params"]))
        if at % config.save_every == 0 and at < config.steps:
            record.flush()  # whoever resumes here finds every line up to here
            save(at, state)
    record.flush()
    return at, state


def _done(run: Workdir, report: Report, at: int, state, word: str) -> int:
    digest = total_digest(state)
    report.line(f"{word}: {at} steps; digest {digest}")
    run.status("done", exits.DONE, step=at, digest=digest)
    return exits.DONE


class Recorder:
    """Metrics to the terminal, metrics.jsonl and wandb, one step behind: reading them waits.

    Every step is looked at, since one that is not finite must never be saved; those due are kept.
    """

    def __init__(self, report: Report, metrics: Metrics, view: View, *, skipping: bool):
        self.report, self.metrics, self.view = report, metrics, view
        self.skipping = skipping
        self.finite: deque[str] = deque(maxlen=5)  # losses, to be named when one is not
        self.pending: tuple | None = None
        self.line: dict = {}  # of a step, until the next one is on its way
        self.code = exits.IO  # how it ended, for wandb

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            self.metrics.close()
        code = error.code if isinstance(error, exits.Stop) else self.code
        self.view.finish(code, {"exit_code": code})

    def later(self, at: int, measured: dict, rate: float, rows: Batches) -> None:
        self.pending = (at, measured, rate, rows)

    def validation(self, at: int, values: dict) -> None:
        self._read()  # the step's own numbers and time come first
        self.line |= self.report.validation(at, values)

    def flush(self) -> None:
        self._read()
        if self.line:
            self.metrics.write(self.line)
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


class Validation:
    """The loss on held-out text at the trained length, on the same rows every time."""

    def __init__(self, config, parts, corpus, mesh):
        self.every, self.last, self.size = config.valid_every, config.steps, config.batch_size
        self.sums = steps.loss_sums(parts, config.data.mask_documents, mesh)
        self.rows: Batch | None = None
        if len(corpus.valid.tokens) >= 2 * config.train_length:
            self.rows = held_out(
                corpus.valid,
                length=config.train_length,
                rows=config.valid_batches * config.batch_size,
                within_documents=config.data.mask_documents,
            )

    def due(self, at: int) -> bool:
        return self.rows is not None and (at % self.every == 0 or at == self.last)

    def __call__(self, params) -> dict[str, float]:
        assert self.rows is not None
        total = np.zeros(3)
        count = len(self.rows.inputs)
        for first in range(0, count, self.size):
            index = np.arange(first, first + self.size)
            rows = jax.tree.map(lambda x, i=index: x[i % count], self.rows)
            repeats = (index < count)[:, None]  # a short last batch is filled with rows of weight 0
            rows = rows._replace(weights=rows.weights * repeats)
            total += np.array(jax.device_get(self.sums(params, rows)))
        nats, targets, size = total
        return {"valid_loss": nats / targets, "valid_bpb": nats / size / np.log(2)}


def starting_parts(config) -> making.Parts:
    """Drawn from the seed, or with the weights of the run that `init_from` names."""
    if not config.init_from:
        return making.make(config)
    source, settings = load_parts(Path(config.init_from), None)
    if settings.extension.name != "none":
        raise exits.OtherConfig(
            f"init_from: {config.init_from} is extended by {settings.extension.name!r} already; "
            "start from the run it began with"
        )
    theirs, ours = source.params(), making.make(config, extended=False).params()
    for group in ours:
        for name, leaf in ours[group].items():
            other = theirs[group].get(name)
            if other is None or other.shape != leaf.shape:
                found = "nothing" if other is None else other.shape
                raise exits.OtherConfig(
                    f"init_from: {group} {name} is {leaf.shape} here and {found} in "
                    f"{config.init_from}; give the model and the encoding of that run"
                )
    return making.make(config, start=theirs)


def check_space(folder: Path, state, keep: int) -> None:
    """Before anything is computed. While one is written there is one more than are kept."""
    one = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    free = shutil.disk_usage(folder).free
    sizes = f"a checkpoint takes {one / 2**20:,.1f} MiB, {free / 2**20:,.1f} MiB are free"
    if free < one:
        raise exits.Stop(f"no room for a single checkpoint in {folder}: {sizes}")
    if free < (keep + 1) * one:
        print(f"warning: {folder} has no room for {keep} + 1 checkpoints: {sizes}", file=sys.stderr)


def _check_rows(config, devices: int) -> None:
    rows = config.batch_size // config.accumulate
    if rows % devices:
        raise exits.ConfigError(
            f"batch_size / accumulate = {rows} rows do not divide among {devices} devices"
        )


def _check_steps(config, saved: list[int]) -> None:
    if saved and saved[-1] > config.steps:
        raise exits.ConfigError(
            f"steps = {config.steps} lies before the checkpoint of step {saved[-1]}; steps must be "
            "at least that, or the run another --workdir"
        )


def _same_data(card: dict, corpus) -> None:
    if card["data"] != corpus.fingerprint:
        raise exits.DataError(
            f"the data changed since the checkpoint: its fingerprint is {corpus.fingerprint[:16]}, "
            f"the run began with {card['data'][:16]}; restore the text, or start another workdir"
        )
