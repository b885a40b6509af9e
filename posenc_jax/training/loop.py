"""The training loop: start or resume a run, train, save and record it."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from statistics import median

import jax

from posenc_jax.config import Training, trained
from posenc_jax.data import batches
from posenc_jax.data.corpora import Corpus, Mixture
from posenc_jax.data.prepare import prepare_corpora
from posenc_jax.runs import parameters, processes
from posenc_jax.runs import subject as subjects
from posenc_jax.runs.checkpoints import Saving, total_digest
from posenc_jax.runs.metrics import Metrics, read_metrics
from posenc_jax.runs.processes import is_lead
from posenc_jax.runs.workdir import Workdir, data_facts
from posenc_jax.runtime import backend, devices, errors
from posenc_jax.runtime.terminal import counted, stop_requests
from posenc_jax.tracking.wandb import View, identity_of
from posenc_jax.training import annealing, memory, optimizer
from posenc_jax.training.console import Recorder, Report, first_screen
from posenc_jax.training.profile import Profile
from posenc_jax.training.train_step import State, fresh_state, train_step
from posenc_jax.training.validation import Validation


def train(
    config: Training,
    workdir: Path,
    accept: Callable[[Corpus | Mixture], None] = lambda corpus: None,
) -> int:
    """Train or resume the run in a workdir and return its exit code.

    `accept` raises if the run's text does not suit what follows. The workdir is locked, the text
    read and a first batch made before it is claimed.
    """
    with processes.joined(config), ExitStack() as stack:
        signals = stack.enter_context(stop_requests())
        run = Workdir(workdir, writes=is_lead())
        run.refuse_another(config)  # before its text is read
        stack.enter_context(run.opened())
        parameters.check(config)
        corpus = prepare_corpora(config.data.source, config.seed, stopping=signals)
        processes.check_same(corpus.fingerprint, "data", errors.DataError)
        config = parameters.with_vocab(config, corpus.vocab)
        memory.refuse_too_large(config)
        rows = batches.batches_of(corpus, config)
        rows.batch(0)
        accept(corpus)
        if config.anneal and is_lead() and run.config() is None:
            annealing.begin(config, run)
        saving = stack.enter_context(closing(Saving(run.path, config.keep)))
        _check_steps(config.steps, saving.steps())
        if config.init_from and is_lead() and not saving.steps():
            subjects.check_tokenizer(config.init_from, corpus.encoder.hash)
        run.claim(config)
        return _train(config, run, corpus, rows, saving, signals)


def _check_steps(steps: int, saved: list[int]) -> None:
    if saved and saved[-1] > steps:
        raise errors.ConfigError(
            f"steps = {steps} is below the checkpoint of step {saved[-1]}; set steps to at "
            "least that, or use another --workdir"
        )


def _train(config, run: Workdir, corpus, rows, saving: Saving, signals: Sequence[str]) -> int:
    mesh, transform = devices.make_mesh(sequence=config.sequence), optimizer.make(config)
    parts, step, state, frozen = _start(config, run, corpus, saving, mesh, transform)
    stopping, profile = processes.Stopping(signals, mesh), Profile(config, run)
    run.say(first_screen(config, parts, corpus, mesh, step))
    if step >= config.steps:
        return _done(run, step, state, "already done")
    facts = {"parameters": parts.counts()}
    kept = {"command": " ".join(sys.argv)} | (run.facts if step else {})
    run.facts = kept | {"data": data_facts(corpus, config.train_length)}
    counts = {"cores": backend.cores(), "devices": jax.device_count()}
    run.facts |= facts | {"machine": backend.machine() | counts}
    run.facts.pop("speed", None)  # measured before this start
    run.status("running", errors.AGAIN, step=step)
    metrics = view = None
    if is_lead():
        metrics = Metrics(run / "metrics.jsonl", step)
        # Opening wandb takes half a minute if its host is unreachable.
        facts["data_fingerprint"] = corpus.fingerprint
        view = View(config, run.path, identity_of(run.path), facts)
    report, rate = Report(run, config, parts, step, frozen), optimizer.schedule(config)
    recorder = Recorder(report, metrics, view, rate, corpus.lossless)
    with recorder as record, profile:

        def save() -> None:
            saving.save(step, state)
            run.step_on_disk = max(saving.steps(), default=0)  # this one is still being saved
            run.status("running", errors.AGAIN, step=step)

        step_once = train_step(parts, transform, config, mesh)
        validate = Validation(config, parts, corpus, mesh, frozen)
        local_rows = devices.own_rows(mesh, config.batch_size)
        # A `stop_at` already reached is ignored, so the same command resumes.
        last = min(config.steps, config.stop_at) if config.stop_at > step else config.steps
        while step < last and not stopping():
            profile.begin(step + 1)
            with jax.profiler.StepTraceAnnotation("train", step_num=step + 1):
                batch = devices.spread(rows.batch(step, local_rows), mesh)
                state, measured = step_once(state, frozen, batch)
            step += 1
            profile.end(step, state)
            record.flush()  # the previous step, while this one is computed
            record.record(step, measured)
            if validate.due(step):
                record.validation(step, validate(state["params"]))
            if step % config.save_every == 0 and step < config.steps:
                record.flush()  # a run resumed from this step needs every line up to it
                save()
        record.flush()
        if step != saving.latest:
            save()
        saving.settle()
        run.step_on_disk = step
        run.facts |= _speed(run)
        record.code = errors.DONE if step == config.steps else errors.AGAIN
    if step == config.steps:
        return _done(run, step, state, "done")
    reason = "stop_at" if step == config.stop_at and not signals else stopping.reason
    run.say(f"stopped by {reason}: saved step {step}; the same command resumes")
    run.status("stopped", errors.AGAIN, step=step, signal=reason)
    return errors.AGAIN


def _start(
    config, run: Workdir, corpus, saving: Saving, mesh, transform
) -> tuple[parameters.Parts, int, State, dict]:
    """Model and encoding, the step and state to start or resume from, and what is not trained."""
    parts = parameters.blank(config)
    every, make_state = parts.params(), partial(fresh_state, optimizer=transform)
    own, frozen = jax.eval_shape(partial(trained.split, config=config), every)
    shapes = jax.eval_shape(make_state, own)
    shardings = devices.shardings(shapes, mesh, config.sharding)

    def accept(card) -> None:
        run.accept(card, config, corpus.fingerprint)
        subjects.refuse_another_base(card, config, run.path)

    found = saving.restore_last(shapes, shardings, accept)
    base = None if saving.card is None else saving.card.get("base")
    if found is None or frozen:
        if config.init_from:
            weights = every
            if is_lead():
                weights, base = subjects.weights_of(config, base, run.path)
            where = devices.shardings(every, mesh, config.sharding)
            params = processes.placed(weights, where)
        else:
            params = parameters.make(config, mesh).params()
            params["encoding"] = devices.placed(params["encoding"], mesh)
        own, frozen = trained.split(params, config)
        if found is None:
            make_state = jax.jit(make_state, out_shardings=shardings, donate_argnums=0)
            found = 0, make_state(own)
    step, state = found
    run.resume_from(step)
    if is_lead():
        saving.belongs = subjects.keep_beside(run.path, config, corpus, saving.card, base)
    return parts, step, state, frozen


def _speed(run: Workdir) -> dict[str, float]:
    """Median tokens per second of the logged steps, without the first, which compiles."""
    with suppress(errors.Stop):  # a damaged file of metrics
        lines = read_metrics(run / "metrics.jsonl")
        speeds = [line["tokens_per_second"] for line in lines if line.get("tokens_per_second")]
        return {"speed": float(median(speeds[1:] or speeds))} if speeds else {}
    return {}


def _done(run: Workdir, step: int, state: State, word: str) -> int:
    digest = total_digest(state)
    run.say(f"{word}: {counted(step, 'step')}; digest {digest}")
    run.status("done", errors.DONE, step=step, digest=digest)
    return errors.DONE
