"""The cells of a run, read from its checkpoints: each pass over the text once, kept as it ends."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from posenc_jax.configuration import Config
from posenc_jax.data import corpus as corpora
from posenc_jax.data.corpus import Split
from posenc_jax.evaluation import records, windows
from posenc_jax.evaluation.losses import Reader
from posenc_jax.evaluation.planning import Cell, Subject, lengths_of, plan
from posenc_jax.evaluation.records import Measured, Sums
from posenc_jax.evaluation.store import Store
from posenc_jax.evaluation.windows import Plan, Text
from posenc_jax.exits import DataError, Interrupted, Stop
from posenc_jax.training import parts as making
from posenc_jax.training.guard import hold, stop_requests
from posenc_jax.training.load import load_checkpoint, saved_steps


def evaluate(
    config: Config, workdir: Path, steps: Sequence[int | None] = (None,)
) -> list[Measured]:
    """Every cell of some checkpoints of a run; None is the last one. Holds `eval/` meanwhile."""
    folder = workdir / "eval"
    folder.mkdir(exist_ok=True)
    measured: list[Measured] = []
    with hold(folder, "another evaluation of this run"), stop_requests() as stopping:
        store = Store(folder / "cells")
        text = None
        for step in steps:
            if stopping:
                break
            try:
                subject = load(workdir, step)
            except Stop:
                if len(steps) == 1 or step in saved_steps(workdir):
                    raise
                tqdm.write(f"checkpoint {step} is gone: the run replaced it meanwhile")
                continue
            lengths = lengths_of(config, subject)
            text = text or choose(config, subject, lengths, stopping)
            cells = plan(config, subject, text, lengths)
            measured += measure(config, subject, text, cells, store, stopping)
            if measured:
                records.write(folder, measured)
        if stopping:
            raise Interrupted(
                f"stopped by {stopping[0]}: {len(measured)} cells are in {folder}; the same "
                "command goes on"
            )
    return measured


def load(workdir: Path, step: int | None) -> Subject:
    at, run, settings, card = load_checkpoint(workdir, step)
    subject = Subject(workdir.resolve().name, settings, at, run, run.encoding, card["data"])
    if subject.extensible:
        plain = making.make(settings, extended=False, start=run.params()).encoding
        return dataclasses.replace(subject, plain=plain)
    return subject


def choose(
    config: Config, subject: Subject, lengths: list[int], stopping: Sequence[str] = ()
) -> Text:
    data = subject.config.data
    own = (config.data.source, config.data.path) == (data.source, data.path)
    if own or not config.data.source:  # the run's own text: what was held out of it
        corpus = corpora.prepare(data, subject.config.seed, stopping=stopping)
        if subject.data not in (None, corpus.fingerprint):
            raise DataError(
                "the run's text changed since it was trained, and with it what is held out: what "
                "would be read may have been trained on. Restore the text, or name another one "
                "(data.source, data.path)"
            )
        split = corpus.valid
    else:
        data = data.copy_and_resolve_references()
        data.source, data.path, data.valid_fraction = config.data.source, config.data.path, 0.0
        data.field, data.split = config.data.field or data.field, config.data.split or data.split
        split = corpora.prepare(data, subject.config.seed, stopping=stopping).train
    return windows.choose(
        split, max(lengths), documents=config.documents, per_document=config.windows
    )


def measure(
    config: Config,
    subject: Subject,
    text: Text,
    cells: Sequence[Cell],
    store: Store,
    stopping: Sequence[str] = (),
) -> list[Measured]:
    """The sums of every cell: from the store, or read now, those of one pass together."""
    found = {cell.key: store.get(cell.key) for cell in cells}
    missing = [cell for cell in cells if found[cell.key] is None]
    passes: dict[str, list[Cell]] = {}
    for cell in missing:
        passes.setdefault(cell.passing, []).append(cell)
    reader = Reader(subject.parts.model, text.split.tokens, config.tokens_per_call)
    total = sum(len(_union(group)) * group[0].plan.length for group in passes.values())
    if len(missing) < len(cells):
        tqdm.write(f"{len(cells) - len(missing)} of {len(cells)} cells are there already")
    with tqdm(total=total, unit="token", unit_scale=True, disable=not total) as bar:

        def after_call(tokens: int) -> None:
            bar.update(tokens)
            if stopping:
                raise _Stopping

        try:
            for group in passes.values():
                facts = group[0].facts
                bar.set_description(f"{facts['extension']} at {facts['length']}")
                for cell, sums in _read(reader, text.split, group, after_call):
                    store.put(cell.key, sums)
                    found[cell.key] = sums
        except _Stopping:
            pass
    return [Measured(cell.facts, sums) for cell in cells if (sums := found[cell.key]) is not None]


class _Stopping(Exception):
    """Out of the middle of a pass; what it had read is read again later."""


def _union(group: Iterable[Cell]) -> np.ndarray:
    return np.unique(np.concatenate([cell.plan.starts for cell in group]))


def _read(
    reader: Reader, split: Split, group: Sequence[Cell], after_call: Callable[[int], None]
) -> Iterable[tuple[Cell, Sums]]:
    """One pass over the windows of all cells of a group, each window once."""
    starts = _union(group)
    first = group[0]
    nats, right = reader(
        first.encoding, starts, first.plan.length, window=first.limit, after_call=after_call
    )
    done: dict[str, Sums] = {}
    for cell in group:
        if cell.key not in done:
            index = np.searchsorted(starts, cell.plan.starts)
            places = cell.facts["protocol"] == "position"
            done[cell.key] = sums_of(cell.plan, nats[index], right[index], split, places)
        yield cell, done[cell.key]


def sums_of(
    plan: Plan, nats: np.ndarray, right: np.ndarray, split: Split, places: bool
) -> Sums:  # nats and right [N, length]
    """What is kept of the losses of a plan's windows; only scored targets count."""
    scored, targets = plan.scored(), plan.targets()
    documents = int(plan.document.max()) + 1

    def by_document(values: np.ndarray) -> np.ndarray:
        kept = np.where(scored, values, 0).sum(axis=1, dtype=np.float64)
        return np.bincount(plan.document, kept, documents)

    ones = np.ones(nats.shape)
    widths = ones if split.bytes_of is None else split.bytes_of[targets]
    marked = np.zeros(nats.shape) if split.answers is None else split.answers[targets]
    return Sums(
        nats=by_document(nats),
        tokens=by_document(ones),
        bytes=by_document(widths),
        answers=by_document(marked),
        right=by_document(marked * right),
        by_place=nats.sum(axis=0, dtype=np.float64) if places else np.zeros(0),
        windows=np.array([len(nats)], np.float64),
    )
