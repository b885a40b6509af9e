"""Evaluate checkpoints of a run: each pass reads the text once, finished cells are cached."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from posenc_jax.config import Evaluation, schema
from posenc_jax.data import texts
from posenc_jax.data.sources.unknown import Unknown
from posenc_jax.evaluation import methods, planning, protocols, records, windows
from posenc_jax.evaluation.cells import Cell, Store, label
from posenc_jax.evaluation.check import lengths_of
from posenc_jax.evaluation.losses import placing, reader_of
from posenc_jax.evaluation.planning import Planned
from posenc_jax.evaluation.statistics import FEW_DOCUMENTS, Units
from posenc_jax.evaluation.windows import Reading, Text
from posenc_jax.runs import processes
from posenc_jax.runs.processes import is_lead
from posenc_jax.runs.subject import Subject, run_config, saved_steps, subjects_of
from posenc_jax.runtime import devices
from posenc_jax.runtime.errors import ConfigError, DataError, Stopped
from posenc_jax.runtime.files import locked
from posenc_jax.runtime.terminal import clock, counted, stop_requests, warn

LOG_SECONDS = 30  # between two lines on progress where there is no terminal


class Evaluated(NamedTuple):
    """An evaluation; without rows in processes other than the lead."""

    name: str
    rows: list[dict[str, Any]]  # of the requested checkpoints
    left_out: list[dict[str, Any]]  # rows of the methods that do not fit
    all_names: list[str]  # of the run's evaluations
    facts: dict[str, Any]  # the configuration, checkpoint, text and model size


def evaluate(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] | None = (None,)
) -> Evaluated:
    """Evaluate checkpoints of a run, the last one if None, or all; `eval/` is locked meanwhile."""
    text = subject = None
    measured, recorded, rows, left_out = [], [], [], []
    with processes.joined(config), ExitStack() as stack:
        signals = stack.enter_context(stop_requests())
        folder, run = workdir / "eval", run_config(workdir)
        if is_lead():
            folder.mkdir(exist_ok=True)
            stack.enter_context(locked(folder, "another evaluation of this run"))
        stopping = processes.Stopping(signals, devices.make_mesh())
        store = Store(folder / "cells")
        earlier = records.earlier_record(folder) if is_lead() else records.NOTHING
        devices.check(config.sequence)
        requested = _requested(config, workdir, steps)
        for subject in subjects_of(run, workdir, requested, placing(config)):
            if stopping():
                break
            lengths = lengths_of(config, subject.trained)
            if text is None:
                text = choose(config, subject, lengths, signals, earlier)
                processes.check_same(text.hash, "text", DataError)
                _tell_targets(config, subject, lengths, text)
            unfit = {}  # the default list is for every encoding, and asks for those that fit
            if config.extensions != Evaluation.extensions:
                unfit = methods.unfit(config.extensions, subject)
            if unfit and not left_out:
                tqdm.write(f"left out: {methods.in_words(unfit)}")
            left_out += records.rows_left_out(planning.facts_of(subject, text.name), unfit)
            planned = planning.plan(config, subject, text, lengths)
            found = measure(config, subject, planned, store, stopping)
            if not stopping():  # else cells that they derive from may be missing
                for protocol in protocols.asked(config):
                    found += protocol.derived(found)
            measured += found
            if measured:  # of the lead
                recorded, rows = records.write(folder, measured, earlier, left_out)
        if stopping():
            raise Stopped(
                f"stopped by {stopping.reason}: {folder} has {counted(len(measured), 'cell')}; the "
                "same command resumes"
            )
        assert text is not None and subject is not None
        names = list(dict.fromkeys(cell.facts["evaluation"] for cell in recorded))
        facts = {
            "evaluation": schema.as_fields(config) | {"name": text.name, "text": text.source},
            "step": subject.step,
            "data_fingerprint": text.data,
            "parameters": subject.parts.counts(),
        }
        return Evaluated(text.name, rows, left_out if rows else [], names, facts)


def _requested(
    config: Evaluation, workdir: Path, steps: Sequence[int | None] | None
) -> Sequence[int | None]:
    """The steps to read; where a run may save meanwhile, all processes read those of the lead."""
    if steps is not None and not (config.distributed and None in steps):
        return steps
    saved = processes.numbers_of_lead(saved_steps(workdir))
    return saved if steps is None else [saved[-1] if step is None else step for step in steps]


def choose(
    config: Evaluation,
    subject: Subject,
    lengths: list[int],
    stopping: Sequence[str] = (),
    earlier: records.Record = records.NOTHING,
) -> Text:
    """Choose the windows of an evaluation, from documents that the run was not trained on."""
    source = texts.text_of(config.data, subject.text, subject.tokenizer, stopping)
    if isinstance(subject.text.source, Unknown):
        warn("the documents that this model was trained on are unknown; it may know this text")
    kept = source.split.without(subject.digests)
    if not kept.all():
        skipped = (
            f"documents that the run was trained on: {len(kept) - kept.sum():,} of {len(kept):,}"
        )
        if not kept.any():
            raise DataError(f"{skipped}; nothing is left to evaluate on")
        warn(f"{skipped}; they are skipped")
    split = windows.in_stretches(source.split, max(lengths))
    if split is not source.split:
        kept = np.ones(len(split.lengths), bool)
    text = windows.choose(
        split,
        max(lengths),
        documents=config.documents,
        per_document=config.windows,
        wanted=planning.wanted(config, subject, lengths),
        spread=config.spread,
        kept=kept,
    )
    data = source.fingerprint[:16]
    name = _name(config, earlier, source.name, data)
    return dataclasses.replace(text, name=name, source=source.words, data=data)


def _name(config: Evaluation, earlier: records.Record, usual: str, data: str) -> str:
    """The requested or usual name; an evaluation of another text never takes a used name."""
    name = config.name or usual
    if name != usual and name in (texts.HELD_OUT, texts.CHOOSE):
        raise ConfigError(f"name = {name!r} is reserved for the run's own text; take another")
    facts = (cell.facts for cell in (*earlier.cells, *earlier.unknown))
    taken = next((one["data"] for one in facts if one["evaluation"] == name), None)
    if taken in (None, "", data):
        return name
    if config.name:
        raise ConfigError(
            f"name = {name!r} is used by an evaluation of another text of this run; take another"
        )
    return f"{name}-{data[:6]}"


def _tell_targets(config: Evaluation, subject: Subject, lengths: list[int], text: Text) -> None:
    count, headline = len(text.starts), protocols.find(protocols.HEADLINE)
    reading = headline.plan(text, text.longest, headline.span(config, subject.trained, lengths))
    targets = 0 if reading is None else int(reading.scored().sum())
    documents, units = len(text.documents), text.units
    over = Units(documents if units is None else int(units.max()) + 1, text.kind)
    of = "" if units is None else f"{counted(documents, 'document')} of "
    tqdm.write(
        f"{of}{over}, {counted(count, 'window')} of {text.longest:,} tokens, "
        f"{counted(count * text.longest, 'target')}, {targets:,} of them for {headline.name}"
    )
    if over.documents < FEW_DOCUMENTS:
        warn(
            f"the intervals are over {over}, too few to speak for other text: raise documents, "
            "hold out more (data.valid_fraction), or give more text (data.source, data.path)"
        )
    for protocol in protocols.asked(config):
        few = protocol.warning(count, protocol.span(config, subject.trained, lengths))
        if few:
            warn(few)


def measure(
    config: Evaluation,
    subject: Subject,
    cells: Sequence[Planned],
    store: Store,
    stopping: Callable[[], bool] = lambda: False,
) -> list[Cell]:
    """Every cell, from the store or from passes that several cells share; none in processes other
    than the lead."""
    done: dict[str, Cell | None] = dict.fromkeys(cell.key for cell in cells)
    if is_lead():
        done = {key: store.get(key) for key in done}
    absent = processes.arrays_of_lead(np.array([done[cell.key] is None for cell in cells], bool))
    missing = [cell for cell, is_absent in zip(cells, absent, strict=True) if is_absent]
    passes: dict[tuple[str, str], list[Planned]] = {}
    for cell in missing:
        passes.setdefault((cell.reading.text.hash, cell.pass_key), []).append(cell)
    total = sum(len(_union(group)) * group[0].reading.length for group in passes.values())
    if len(missing) < len(cells):
        tqdm.write(f"{len(cells) - len(missing)} of {counted(len(cells), 'cell')} cached")
    hidden = not total or None  # None: where there is no terminal
    began = said = time.monotonic()
    read = 0
    with tqdm(total=total, unit="token", unit_scale=True, smoothing=0, disable=hidden) as bar:

        def before_call() -> None:
            if stopping():
                raise _Stopping

        try:
            for group in passes.values():
                one, starts, last = group[0], _union(group), max(map(_last_read, group))
                name, length = f"{label(one.facts)} at {one.facts['length']}", one.reading.length
                bar.set_description(name)
                reader = reader_of(config, subject, one.reading.text.split.tokens)
                losses = reader(one.encoding, starts, length, last, before_call, bar.update)
                if is_lead():
                    done |= _stored(store, group, starts, *losses)
                read, now = read + len(starts) * length, time.monotonic()
                if bar.disable and now > said + LOG_SECONDS:
                    left = clock((now - began) * (total - read) / read)
                    tqdm.write(f"{name}: {read:,} of {total:,} tokens read, {left} left")
                    said = now
        except _Stopping:
            pass
    return [
        own._replace(facts=cell.facts).by_unit(cell.reading.text.units)
        for cell in cells
        if (own := done[cell.key]) is not None
    ]


class _Stopping(Exception):
    """Abort a pass, whose windows are read again later."""


def _union(group: Iterable[Planned]) -> np.ndarray:
    """Starts of the windows of a group, each window once."""
    return np.unique(np.concatenate([cell.reading.starts for cell in group]))


def _stored(
    store: Store, group: Sequence[Planned], starts: np.ndarray, nats: np.ndarray, chosen: np.ndarray
) -> dict[str, Cell]:
    """Sum the losses of a group's windows by cell and store the sums."""
    done = {}
    for cell in {cell.key: cell for cell in group}.values():
        index = np.searchsorted(starts, cell.reading.starts)
        done[cell.key] = summed(cell.facts, cell.reading, nats[index], chosen[index])
        store.put(cell.key, done[cell.key])
    return done


def _last_read(cell: Planned) -> int:
    """How many last targets of its windows a cell reads: all of them for a null or a curve."""
    reading, facts = cell.reading, cell.facts
    if reading.length == facts["train_length"] or protocols.find(facts["protocol"]).by_place:
        return reading.length
    return reading.length - int(reading.first.min())


def summed(
    facts: dict[str, Any], reading: Reading, nats: np.ndarray, chosen: np.ndarray
) -> Cell:  # nats of the last targets and the tokens ranked first, [N, last]
    """Sum the losses of a reading's windows by document."""
    split, trained = reading.text.split, facts["train_length"]
    places = protocols.find(facts["protocol"]).by_place
    last = slice(reading.length - nats.shape[1], None)
    scored, targets = reading.scored()[:, last], reading.targets()[:, last]
    documents = int(reading.document.max()) + 1
    place = np.broadcast_to(np.arange(reading.length)[last], nats.shape)
    early = place < trained
    within = early if places or reading.length == trained else np.zeros_like(early)
    tail = within & (place >= trained - max(1, trained // 4))

    def by_document(values: np.ndarray, which: np.ndarray = scored) -> np.ndarray:
        kept = np.where(which, values, 0).sum(axis=1, dtype=np.float64)
        return np.bincount(reading.document, kept, documents)

    ones = np.ones(nats.shape)
    widths = ones if split.bytes_of is None else split.bytes_of[targets]
    marked = np.zeros(nats.shape) if split.answers is None else split.answers[targets]
    if reading.counts is not None:
        marked = marked * reading.counts(chosen)
    first = chosen == split.tokens[targets]
    older = np.zeros(nats.shape, bool)
    if reading.older is not None:
        older[scored] = (reading.older == chosen[scored][:, None]).any(axis=1)
    return Cell(
        facts,
        nats=by_document(nats),
        tokens=by_document(ones),
        bytes=by_document(widths if split.lossless else np.zeros(nats.shape)),
        answers=by_document(marked),
        right=by_document(marked * (first if reading.right is None else reading.right(nats))),
        older_right=by_document(marked * older),
        early=by_document(ones, scored & early),
        within_nats=by_document(nats, within),
        within_tokens=by_document(ones, within),
        tail_nats=by_document(nats, tail),
        tail_tokens=by_document(ones, tail),
        by_place=nats.sum(axis=0, dtype=np.float64) if places else np.zeros(0),
        windows=np.array([len(nats)], np.float64),
    )
