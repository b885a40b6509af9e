"""The training loop: start or resume a run, train, save and record it."""

import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posenc_jax.config import Training, schema
from posenc_jax.config.resolve import FORMAT, TOKENIZER
from posenc_jax.data import batches, corpora, tokenizer
from posenc_jax.data.batches import Mixture
from posenc_jax.data.corpora import Corpus
from posenc_jax.runs import parameters, processes
from posenc_jax.runs import subject as subjects
from posenc_jax.runs.checkpoints import Checkpoints, total_digest
from posenc_jax.runs.metrics import Metrics, read_metrics
from posenc_jax.runs.processes import is_lead
from posenc_jax.runs.workdir import (
    Workdir,
    data_facts,
    hash_of_digests,
    keep_trained_on,
    median_speed,
    read_trained_on,
    refuse_another,
    sealed,
    training_digests,
)
from posenc_jax.runtime import backend, devices, errors
from posenc_jax.runtime.files import locked, write_atomically
from posenc_jax.runtime.terminal import counted, stop_requests, warn
from posenc_jax.tracking.wandb import TrainingView, View
from posenc_jax.training import optimizer
from posenc_jax.training.console import Recorder, Report, first_screen
from posenc_jax.training.train_step import fresh_state, train_step
from posenc_jax.training.validation import Validation


def train(config: Training, workdir: Path) -> int:
    """Train or resume the run in a workdir and return its exit code."""
    with processes.joined(config), stop_requests() as signals, ExitStack() as stack:
        run = Workdir(workdir)
        _check_source(config, run.config())
        if is_lead():
            stack.enter_context(_locked(run))
            stack.enter_context(run.recording_failure())
        parameters.check(config)  # before anything is written: a mistake must not claim the workdir
        _check_devices(config)
        unusual = backend.unusual_settings()
        if unusual and is_lead():
            warn(f"{', '.join(unusual)}: not jax's default; a seed gives different results")
        corpus = batches.prepare_corpora(
            config.data.source, config.seed, quiet=not is_lead(), stopping=signals
        )
        processes.check_same(corpus.fingerprint, "data", errors.DataError)
        config = with_vocab(config, corpus.vocab)
        saving = stack.enter_context(closing(Saving(run, config.keep)))
        _check_steps(config, saving.steps())
        if is_lead():
            run.claim(config)
        return _train(config, run, corpus, saving, signals)


@contextmanager
def _locked(run: Workdir) -> Iterator[None]:
    run.create()
    with locked(run.path, "another training run"):
        yield


def _check_source(config: Training, saved: Training | None) -> None:
    """Refuse to start from a run that is extended already."""
    if config.init_from and saved is None:
        source = Workdir(config.init_from).checked_config()
        if source is not None:
            _refuse_extended(config.init_from, source)


def _refuse_extended(place: str, source: Training) -> None:
    if source.extension.name != "none":
        raise errors.OtherConfig(
            f"init_from: {place} is already extended by {source.extension.name!r}; start from the "
            "run before its extension"
        )


def with_vocab(config: Training, vocab: int) -> Training:
    if config.model.vocab is not None and config.model.vocab < vocab:
        raise errors.DataError(
            f"model.vocab = {config.model.vocab} is less than the {vocab} tokens of the tokenizer"
        )
    model = dataclasses.replace(config.model, vocab=config.model.vocab or vocab)
    prefix = config.data.prefix
    if prefix is not None and prefix >= model.vocab_size:
        raise errors.ConfigError(
            f"data.prefix = {prefix} is not a token of the vocabulary, which has {model.vocab_size}"
        )
    return dataclasses.replace(config, model=model)


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


def _train(config, run: Workdir, corpus, saving: Saving, signals: Sequence[str]) -> int:
    mesh = devices.make_mesh(sequence=config.sequence)

    cards: dict[int, dict] = {}

    def accept(step: int, card: dict) -> None:
        refuse_another(sealed(card), config, f"checkpoint {step} of {run.path}")
        _same_data(card, corpus)
        cards[step] = card

    resumes = bool(saving.steps())
    # All processes get the lead's state, so the others need only its shape.
    parts = parameters.make(config) if resumes or not is_lead() else starting_parts(config)
    fresh = fresh_state(parts, optimizer.make(config))
    shardings = devices.shardings(fresh, mesh, config.sharding)
    step, state = saving.restore_last(fresh, shardings, accept)
    del fresh
    belongs = {}
    if is_lead():
        run.resume_from(step)
        check_space(run.path, state, config.keep)
        belongs = _belongs(config, run, corpus, cards.get(step))
    stopping = processes.Stopping(signals, mesh)
    screen = first_screen(config, parts, corpus, mesh, step)
    report = Report(run if is_lead() else None, screen)
    if step >= config.steps:
        return _done(run, report, step, state, "already done")
    earlier_facts = run.facts if step else {}
    run.facts = {"command": " ".join(sys.argv)} | earlier_facts
    run.facts |= {"data": data_facts(corpus), "parameters": parts.counts()}
    run.facts["machine"] = backend.machine() | {"cores": backend.cores()}
    run.facts.pop("speed", None)  # measured before this start
    if is_lead():
        run.status("running", errors.AGAIN, step=step)
    # Opening wandb takes half a minute if its host is unreachable.
    records = _records(config, run, step, parts, corpus)
    report.start(step, config, parts)
    skipping = config.skip_not_finite
    with Recorder(report, *records, skipping=skipping, lossless=corpus.lossless) as record:

        def save(step: int, state) -> None:
            saving.save(step, state, belongs)
            if is_lead():
                run.set_saved(step, saving.last())

        step, state = _steps(config, parts, corpus, mesh, save, record, step, state, stopping)
        if step != saving.saved:
            save(step, state)
        saving.steps()  # waits for the save
        if is_lead():
            run.facts |= _speed(run) | record.facts
        record.code = errors.DONE if step == config.steps else errors.AGAIN
    if step == config.steps:
        return _done(run, report, step, state, "done")
    reason = "stop_at" if step == config.stop_at and not signals else stopping.reason
    report.line(f"stopped by {reason}: saved step {step}; the same command resumes")
    run.saved = step
    if is_lead():
        run.status("stopped", errors.AGAIN, step=step, signal=reason, **record.facts)
    return errors.AGAIN


def _records(
    config, run: Workdir, step: int, parts: parameters.Parts, corpus
) -> tuple[Metrics | None, View | None]:
    if not is_lead():
        return None, None
    facts = {"parameters": parts.counts(), "data_fingerprint": corpus.fingerprint}
    return Metrics(run / "metrics.jsonl", step), TrainingView(config, run.path, facts)


def _steps(
    config: Training,
    parts: parameters.Parts,
    corpus: Corpus | Mixture,
    mesh,
    save: Callable[[int, Any], None],
    record: Recorder,
    step: int,
    state,
    stopping: processes.Stopping,
):
    """Train from a step to the last one, `stop_at` or a stop signal."""
    step_once = train_step(parts, optimizer.make(config), config, mesh)
    validate = Validation(config, parts, corpus, mesh)
    rate = optimizer.schedule(config)
    rows = batches.batches_of(corpus, config)
    local_rows = devices.own_rows(mesh, config.batch_size)
    # A `stop_at` already reached is ignored, so the same command resumes.
    last = min(config.steps, config.stop_at) if config.stop_at > step else config.steps
    while step < last and not stopping():
        state, measured = step_once(state, devices.spread(rows.batch(step, local_rows), mesh))
        step += 1
        record.flush()  # the previous step, while this one is computed
        record.record(step, measured, rate, rows)
        if validate.due(step):
            record.validation(step, validate(state["params"]))
        if step % config.save_every == 0 and step < config.steps:
            record.flush()  # a run resumed from this step needs every line up to it
            save(step, state)
    record.flush()
    return step, state


def _speed(run: Workdir) -> dict[str, float]:
    with suppress(errors.Stop):  # a damaged file of metrics
        rate = median_speed(read_metrics(run / "metrics.jsonl"))
        return {"speed": rate} if rate else {}
    return {}


def _done(run: Workdir, report: Report, step: int, state, word: str) -> int:
    digest = total_digest(processes.on_host(state))
    skipped = run.facts.get("skipped")
    steps = counted(step, "step") + (f", {skipped} skipped" if skipped else "")
    report.line(f"{word}: {steps}; digest {digest}")
    run.saved = step
    if is_lead():
        run.status("done", errors.DONE, step=step, digest=digest)
    return errors.DONE


def starting_parts(config) -> parameters.Parts:
    """Initialise model and encoding from the seed, or from the weights of `init_from`."""
    if not config.init_from:
        return parameters.make(config)
    source = subjects.load(Path(config.init_from))
    _refuse_extended(config.init_from, source.config)
    if source.card["tokenizer"] != corpora.encoder_of(config.data.source).hash:
        raise errors.OtherConfig(
            f"init_from: {config.init_from} was not trained with the tokenizer of this run; give "
            "the one of that run"
        )
    saved, fresh = source.parts.params(), parameters.make(config, extended=False).params()
    for group in fresh:
        for name, leaf in fresh[group].items():
            other = saved[group].get(name)
            if other is None or other.shape != leaf.shape:
                shape = "nothing" if other is None else other.shape
                raise errors.OtherConfig(
                    f"init_from: {group} {name} is {leaf.shape} here and {shape} in "
                    f"{config.init_from}; use that run's model and encoding"
                )
            saved[group][name] = other.astype(leaf.dtype)  # of adopted weights in bfloat16
    return parameters.make(config, start=saved)


def check_space(folder: Path, state, keep: int) -> None:
    """Check the disk space for `keep` + 1 checkpoints, the number during a save."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    free = shutil.disk_usage(folder).free
    sizes = f"a checkpoint takes {size / 2**20:,.1f} MiB, {free / 2**20:,.1f} MiB are free"
    if free < size:
        raise errors.Stop(f"no space for a single checkpoint in {folder}: {sizes}")
    if free < (keep + 1) * size:
        warn(f"{folder} has no space for {keep} + 1 checkpoints: {sizes}")


def _check_devices(config) -> None:
    devices.check(config.sequence)
    rows, shares = config.batch_size // config.accumulate, jax.device_count() // config.sequence
    if rows % shares:
        raise errors.ConfigError(
            f"batch_size / accumulate = {rows} must be a multiple of devices / sequence = {shares}"
        )
    if config.sequence > 1 and config.model.attention == "kernel":
        raise errors.ConfigError(
            "model.attention = 'kernel' needs whole rows: use auto, or sequence = 1"
        )


def _check_steps(config, saved: list[int]) -> None:
    if saved and saved[-1] > config.steps:
        raise errors.ConfigError(
            f"steps = {config.steps} is below the checkpoint of step {saved[-1]}; set steps to at "
            "least that, or use another --workdir"
        )


def _belongs(config, run: Workdir, corpus, card: dict | None) -> dict[str, Any]:
    """Facts of a checkpoint about its run; the files that it names are kept in the folder."""
    return {
        "data": corpus.fingerprint,
        "text": corpus.key,
        "tokenizer": _keep_tokenizer(config, run),
        "config": schema.as_fields(config),
        "format": FORMAT,
        "trained_on": _keep_trained_on(config, run, corpus, card),
    }


def _keep_trained_on(config, run: Workdir, corpus, card: dict | None) -> str:
    """Write the list of training documents, unless a resumed run has it, and return its hash."""
    if card is not None:
        with suppress(errors.DataError):
            return hash_of_digests(read_trained_on(run.path, card))
    digests = training_digests(config, corpus)
    keep_trained_on(run.path, digests)
    return hash_of_digests(digests)


def _keep_tokenizer(config, run: Workdir) -> str:
    """Keep the tokenizer in the run's folder, where it is found wherever that is; its hash."""
    encoder = corpora.encoder_of(config.data.source)
    if isinstance(encoder, tokenizer.Learned):
        write_atomically(run / TOKENIZER, encoder.tokenizer.to_str())
    return encoder.hash


def _same_data(card: dict, corpus) -> None:
    if corpus.fingerprint != card["data"]:
        raise errors.DataError(
            f"the data changed since the checkpoint: its fingerprint is {corpus.fingerprint[:16]}, "
            f"but the checkpoint has {card['data'][:16]}; restore the text, or use another workdir"
        )
