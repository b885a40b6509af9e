"""Evaluate checkpoints of a run: each pass reads the text once, finished cells are cached."""

import dataclasses
import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from posenc_jax.configuration import Config, shares
from posenc_jax.data import corpora, mixtures, sources
from posenc_jax.data.corpora import Corpus, Split
from posenc_jax.data.mixtures import Mixture
from posenc_jax.errors import ConfigError, DataError, Interrupted, Stop
from posenc_jax.evaluation import diagnostics, keys, planning, progress, protocols, records, windows
from posenc_jax.evaluation.losses import Reader
from posenc_jax.evaluation.methods import in_words as methods_in_words
from posenc_jax.evaluation.planning import Cell, lengths_of, plan
from posenc_jax.evaluation.store import Store
from posenc_jax.evaluation.sums import Measured, Sums, is_baseline, label
from posenc_jax.evaluation.sums_file import Places
from posenc_jax.evaluation.windows import Plan, Text
from posenc_jax.files import locked
from posenc_jax.lineage import part_of, trained_length, with_unset
from posenc_jax.registry import FILES
from posenc_jax.runs import parameters
from posenc_jax.runs.signals import stop_requests
from posenc_jax.runs.subject import Subject, load_subject, saved_steps
from posenc_jax.terminal import counted, warn


class Evaluated(NamedTuple):
    name: str
    cells: list[Measured]  # of the requested checkpoints
    every: list[Measured]  # of this evaluation, other checkpoints of the run included
    all_names: list[str]  # of the run's evaluations
    left_out: list[dict[str, Any]]  # rows of the methods that do not fit
    facts: dict[str, Any]  # the configuration, checkpoint, text and model size


def evaluate(config: Config, workdir: Path, steps: Sequence[int | None] = (None,)) -> Evaluated:
    """Evaluate checkpoints of a run, where None is the last one, with `eval/` locked."""
    folder = workdir / "eval"
    folder.mkdir(exist_ok=True)
    measured: list[Measured] = []
    recorded: list[Measured] = []
    left_out: list[dict[str, Any]] = []
    with locked(folder, "another evaluation of this run"), stop_requests() as stopping:
        store, earlier = Store(folder / "cells"), records.before(folder)
        text = subject = None
        for step in steps:
            if stopping:
                break
            try:
                subject = load_subject(workdir, step)
            except Stop:
                if len(steps) == 1 or step in saved_steps(workdir):
                    raise
                tqdm.write(f"checkpoint {step} is skipped: the run replaced it meanwhile")
                continue
            lengths = lengths_of(config, subject.trained)
            if text is None:
                text = choose(config, subject, lengths, stopping, earlier)
                _tell_targets(config, subject, lengths, text)
            unfit = planning.unfit(config, subject)
            if unfit and not left_out:
                tqdm.write(f"left out: {methods_in_words(unfit)}")
            left_out += records.rows_left_out(subject, text.name, unfit)
            cells = plan(config, subject, text, lengths)
            found = measure(config, subject, cells, store, stopping)
            for protocol in protocols.asked(config):
                found += protocol.derived(found)
            measured += found
            if measured:
                recorded = records.write(folder, measured, [places_of(text)], earlier, left_out)
        if subject is not None and not stopping:
            keys.write(folder, flat_keys(subject))
        if stopping:
            raise Interrupted(
                f"stopped by {stopping[0]}: {folder} has {counted(len(measured), 'cell')}; the "
                "same command resumes"
            )
    if text is None or subject is None:
        raise Stop(
            f"the checkpoints of {workdir} were all replaced meanwhile; run the same command again"
        )
    names = list(dict.fromkeys(cell.facts["evaluation"] for cell in recorded))
    facts = {
        "evaluation": config.to_dict() | {"name": text.name, "text": text.source},
        "step": subject.step,
        "data_fingerprint": text.data,
        "parameters": subject.parts.counts(),
    }
    every = records.of_evaluation(recorded, text.name)
    return Evaluated(text.name, measured, every, names, left_out, facts)


def flat_keys(subject: Subject) -> dict[int, np.ndarray]:
    """Effective keys within L by layer and head, of this checkpoint and, unless the run continues
    another, of step 0; empty where the encoding has no bias."""
    config = subject.config
    encodings = {subject.step: subject.plain}
    if not config.init_from:
        encodings = {0: parameters.first_encoding(config)} | encodings
    found = {
        step: diagnostics.effective_keys(encoding, subject.original, config.model.layers)
        for step, encoding in encodings.items()
    }
    return {step: one for step, one in found.items() if one is not None}


def places_of(text: Text) -> Places:
    return Places(text.name, text.document, text.starts - text.split.starts[text.document])


CHOOSE = "choose"  # name of an evaluation on the third split


class Source(NamedTuple):
    split: Split
    words: str
    fingerprint: str
    name: str  # usual name of its evaluation


def choose(
    config: Config,
    subject: Subject,
    lengths: list[int],
    stopping: Sequence[str] = (),
    earlier: records.Record = records.NOTHING,
) -> Text:
    """Choose the windows of an evaluation, from documents that the run was not trained on."""
    source = _source(config, subject, stopping)
    kept = source.split.without(subject.trained_on(stopping))
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


def check_readable(config: Config, run: Config) -> None:
    """Check before training that the evaluation has text to read: a long enough document of the
    run's own text, or a file of another text."""
    asked = config.data
    parts = shares(run.data.mixture) if run.data.mixture else {}
    if asked.tokens:
        corpora.prepared(asked.tokens)
        return
    own = asked.path in ("", run.data.path) and asked.source in ("", run.data.source, *parts)
    if not own:
        sources.files(asked)
        return
    corpus = mixtures.prepare(run.data, run.seed, run.train_length)
    name = asked.source if asked.source in parts else next(iter(corpus.parts))
    split = _part(corpus.parts[name], run.data, asked.part).split
    longest = max(planning.lengths_of(config, trained_length(run)))
    windows.choose(windows.in_stretches(split, longest), longest)


def _source(config: Config, subject: Subject, stopping: Sequence[str]) -> Source:
    data, asked = subject.config.data, config.data
    if asked.tokens:
        corpus = corpora.prepared(asked.tokens)
        if not corpus.is_that_of(subject.card):
            return _prepared(subject, corpus, asked)
        return _own(subject, corpus, asked.part)
    run = subject.config
    if data.mixture and asked.source in ("", *shares(data.mixture)):
        return _own_part(subject, asked, stopping)
    there = (asked.source, asked.path) == (data.source, data.path)
    names = ("field", "name", "revision", "begins", "valid_path")
    same = there and all(asked[name] in ("", data[name]) for name in names)
    same = same and asked.split in ("", data.split, data.valid_split)
    moved = None if same or not asked.source else _moved(subject, asked)
    if (same and not data.mixture) or not asked.source or moved:
        data = moved or data
        if data.source in FILES and not _is_there(data):
            raise DataError(
                f"the run's text is no longer at {data.path}. To read it where it is now: python "
                f"eval_extrapolation.py {shlex.quote(f'--workdir={subject.workdir}')} "
                f"--config.data.source={data.source} --config.data.path=NEW"
            )
        corpus = corpora.prepare(data, run.seed, run.train_length, stopping=stopping)
        return _own(subject, corpus, asked.part)
    if asked.valid_path:
        raise DataError(
            "data.valid_path is for a run's own text at another place, but data.source and "
            "data.path name another text. To evaluate on that text, give data.path alone"
        )
    encoder = subject.tokenizer_file  # before these fields are replaced
    data = data.copy_and_resolve_references()
    with data.ignore_type():
        data.mixture, data.answers_only, data.task = None, False, None
        data.source, data.path, data.valid_fraction = asked.source, asked.path, 0.0
        data.field, data.split = asked.field or data.field, asked.split or data.split
        for name in ("name", "revision", "begins"):
            data[name] = asked[name] or (data[name] if there else None)
        data.valid_path = data.valid_split = None
        data.choose_fraction, data.cut_one, data.hold_out = 0.0, False, None
        data.tokens, data.tokenizer, data.cache = None, encoder, data.cache or ""
    data = with_unset(data)
    corpus = corpora.prepare(data, run.seed, run.train_length, stopping=stopping)
    return Source(corpus.train, in_words(data), corpus.fingerprint, _short(data))


def _moved(subject: Subject, asked) -> Config | None:
    """The run's `data` with the requested paths, if its files moved there."""
    run, key = subject.config, subject.card.get("text")
    options = (asked.field, asked.split, asked.name, asked.revision, asked.begins)
    if key is None or asked.source != run.data.source or any(options):
        return None
    data = run.data.copy_and_resolve_references()
    with data.ignore_type():
        data.path, data.valid_path = asked.path, asked.valid_path or data.valid_path
    if _is_there(run.data) or not _is_there(data):
        return None
    with corpora.remembered(corpora.cache_folder(data.cache)) as hashes:
        found = corpora.described(data, run.seed, run.train_length, hashes)
    return data if found.key == key else None


def _is_there(data) -> bool:
    """Return True if the files of a text exist."""
    with suppress(DataError):
        sources.held_out_files(data)
        return bool(sources.files(data))
    return False


def _own_part(subject: Subject, asked, stopping: Sequence[str]) -> Source:
    """One text of the run's mixture, by default the first."""
    run = subject.config
    mixture = mixtures.prepare(run.data, run.seed, run.train_length, stopping=stopping)
    assert isinstance(mixture, Mixture)
    name = asked.source or next(iter(mixture.parts))
    _check_own(subject, mixture)
    source = _part(mixture.parts[name], part_of(run.data, name), asked.part)
    if mixture.parts[name] is mixture.first:
        return source
    return source._replace(name=f"{name}-{CHOOSE}" if asked.part == CHOOSE else name)


def _own(subject: Subject, corpus: Corpus, part: str) -> Source:
    """A part of the run's own text that it was not trained on."""
    _check_own(subject, corpus)
    return _part(corpus, subject.config.data, part)


def _part(corpus: Corpus, data, part: str) -> Source:
    parts = {
        "held_out": (corpus.valid, "held out of", records.HELD_OUT, "valid_fraction"),
        "choose": (corpus.choose, "to choose on, of", CHOOSE, "choose_fraction"),
    }
    split, words, name, field = parts[part]
    if not len(split.lengths):
        raise DataError(
            f"data.part={part}: the run kept no documents for it; train it with "
            f"data.{field} above 0, or name another text (data.source, data.path)"
        )
    read = corpus.fingerprint if part == "held_out" else digest_of(name, corpus)
    return Source(split, f"{words} {in_words(data)}", read, name)


def _prepared(subject: Subject, corpus: Corpus, asked) -> Source:
    """All documents of another text, from prepared tokens."""
    if asked.part != "held_out":
        raise ConfigError(
            f"data.part = {asked.part!r} is a part of the run's own text, and "
            f"data.tokens={asked.tokens} is another text"
        )
    own = subject.encoder
    if own.hash != corpus.card.get("tokenizer_hash"):
        raise DataError(
            f"the tokens in {asked.tokens} are of the tokenizer {corpus.card['tokenizer']}, and "
            f"the run was trained on those of {own.name}, a different one"
        )
    name = _plain_word(Path(asked.tokens).name) or "tokens"
    return Source(corpus.whole(), f"tokens:{asked.tokens}", corpus.fingerprint, name)


def digest_of(part: str, corpus: Corpus) -> str:
    """Digest of a part of a text, which counts as a text of its own."""
    return hashlib.sha256(f"{corpus.fingerprint} {part}".encode()).hexdigest()


def _short(data) -> str:
    """A short name for a path: `books/*.txt` -> `books`, `OWNER/NAME` -> `NAME`."""
    path = Path(data.path.split(",")[0].strip())
    plain = [part for part in path.parts if not set(part) & set("*?[")]
    stem = plain[-1].partition(".")[0] if plain else ""
    return _plain_word(stem) or data.source


def _plain_word(text: str) -> str:
    return re.sub(r"[^\w]+", "-", text).strip("-_")[:60]


def in_words(data) -> str:
    """Describe what is read in a few words."""
    if data.tokens:
        return f"tokens:{data.tokens}"
    if data.source == "synthetic":
        options = [str(data[name]) for name in ("variant", "gaps") if data.get(name)]
        return " ".join([f"synthetic:{data.task}", *options])
    return f"{data.source}:{data.path}" if data.path else data.source


def _check_own(subject: Subject, corpus: Corpus | Mixture) -> None:
    if not corpus.is_that_of(subject.card):
        raise DataError(
            "the run's text changed since it was trained, and with it the held-out documents, some "
            "of which the run may have been trained on. Restore the text, or name another one "
            "(data.source, data.path)"
        )


def _name(config: Config, earlier: records.Record, usual: str, data: str) -> str:
    """Name of an evaluation, requested or usual; another text never reuses a name."""
    name = config.name or usual
    if name != usual and name in (records.HELD_OUT, CHOOSE):
        raise ConfigError(f"name = {name!r} is reserved for the run's own text; take another")
    facts = (cell.facts for cell in earlier.cells)
    taken = next((one["data"] for one in facts if one["evaluation"] == name), None)
    if taken in (None, "", data):
        return name
    if config.name:
        raise ConfigError(
            f"name = {name!r} is used by an evaluation of another text of this run; take another"
        )
    return f"{name}-{data[:6]}"


def _tell_targets(config: Config, subject: Subject, lengths: list[int], text: Text) -> None:
    count, headline = len(text.starts), protocols.find(protocols.HEADLINE)
    plan = headline.plan(text, text.longest, headline.span(config, subject.trained, lengths))
    targets = 0 if plan is None else int(plan.scored().sum())
    units = text.units
    packages = "" if units is None else counted(int(units.max()) + 1, "package")
    of = packages and f" of {packages}, the units of intervals"
    tqdm.write(
        f"{counted(len(text.documents), 'document')}{of}, {counted(count, 'window')} of "
        f"{text.longest:,} tokens, {counted(count * text.longest, 'target')}, {targets:,} of them "
        f"for {headline.name}"
    )
    for protocol in protocols.asked(config):
        few = protocol.warning(count, protocol.span(config, subject.trained, lengths))
        if few:
            warn(few)


def measure(
    config: Config,
    subject: Subject,
    cells: Sequence[Cell],
    store: Store,
    stopping: Sequence[str] = (),
) -> list[Measured]:
    """Sums of every cell, from the store or from passes that several cells share."""
    done = {key: store.get(key) for key in dict.fromkeys(cell.key for cell in cells)}
    missing = [cell for cell in cells if done[cell.key] is None]
    passes: dict[tuple[str, str], list[Cell]] = {}
    for cell in missing:
        passes.setdefault((cell.text.hash, cell.pass_key), []).append(cell)
    total = sum(len(_union(group)) * group[0].plan.length for group in passes.values())
    if len(missing) < len(cells):
        tqdm.write(f"{len(cells) - len(missing)} of {counted(len(cells), 'cell')} cached")
    with _Bar(total=total, unit="token", unit_scale=True, smoothing=0, disable=not total) as bar:

        def after_call(tokens: int) -> None:
            bar.update(tokens)
            if stopping:
                raise _Stopping

        try:
            for group in passes.values():
                finished = sum(done[cell.key] is not None for cell in cells)
                progress.write(store.folder.parent, finished, len(cells))
                bar.set_description(_pass_in_words(group[0].facts))
                split = group[0].text.split
                reader = Reader(subject.parts.model, split.tokens, config.tokens_per_call)
                for cell, sums in _read(reader, split, group, after_call):
                    store.put(cell.key, sums)
                    done[cell.key] = sums
        except _Stopping:
            pass
    progress.clear(store.folder.parent)
    return [
        Measured(cell.facts, sums.by_unit(cell.text.units))
        for cell in cells
        if (sums := done[cell.key]) is not None
    ]


def _pass_in_words(facts: Mapping[str, Any]) -> str:
    """Label of a pass: `yarn:8 at 512`, `window of 64 at 512`."""
    method = f"window of {facts['window']}" if is_baseline(facts) else label(facts)
    return f"{method} at {facts['length']}"


class _Bar(tqdm):
    """A progress bar without an estimate for the first tenth, where passes compile."""

    @property
    def format_dict(self) -> dict[str, Any]:
        facts = dict(super().format_dict)
        early = not self.total or self.n < self.total / 10
        left = "" if early else ", {remaining} left"
        return facts | {
            "bar_format": "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} tokens [{elapsed}"
            + left
            + "]"
        }


class _Stopping(Exception):
    """Abort a pass, whose windows are read again later."""


def _union(group: Iterable[Cell]) -> np.ndarray:
    return np.unique(np.concatenate([cell.plan.starts for cell in group]))


def _read(
    reader: Reader, split: Split, group: Sequence[Cell], after_call: Callable[[int], None]
) -> Iterable[tuple[Cell, Sums]]:
    """Read the windows of all cells of a group in one pass, each window once."""
    starts = _union(group)
    first = group[0]
    nats, right = reader(
        first.encoding, starts, first.plan.length, window=first.limit, after_call=after_call
    )
    done: dict[str, Sums] = {}
    for cell in group:
        if cell.key not in done:
            index = np.searchsorted(starts, cell.plan.starts)
            places = protocols.find(cell.facts["protocol"]).by_place
            trained = cell.facts["train_length"]
            done[cell.key] = sums_of(cell.plan, nats[index], right[index], split, trained, places)
        yield cell, done[cell.key]


def sums_of(
    plan: Plan, nats: np.ndarray, right: np.ndarray, split: Split, trained: int, places: bool
) -> Sums:  # nats and right [N, length]
    """Sum the losses of a plan's windows by document."""
    scored, targets = plan.scored(), plan.targets()
    documents = int(plan.document.max()) + 1
    place = np.broadcast_to(np.arange(plan.length), nats.shape)
    within = place < trained
    tail = within & (place >= trained - max(1, trained // 4))

    def by_document(values: np.ndarray, chosen: np.ndarray = scored) -> np.ndarray:
        kept = np.where(chosen, values, 0).sum(axis=1, dtype=np.float64)
        return np.bincount(plan.document, kept, documents)

    ones = np.ones(nats.shape)
    widths = ones if split.bytes_of is None else split.bytes_of[targets]
    marked = np.zeros(nats.shape) if split.answers is None else split.answers[targets]
    answers, right = by_document(marked), by_document(marked * right)
    if plan.together:
        answers, right = np.sign(answers), (answers > 0) & (right == answers)
    return Sums(
        nats=by_document(nats),
        tokens=by_document(ones),
        bytes=by_document(widths if split.lossless else np.zeros(nats.shape)),
        answers=answers,
        right=right.astype(np.float64),
        early=by_document(ones, scored & within),
        within_nats=by_document(nats, within),
        within_tokens=by_document(ones, within),
        tail_nats=by_document(nats, tail),
        tail_tokens=by_document(ones, tail),
        by_place=nats.sum(axis=0, dtype=np.float64) if places else np.zeros(0),
        windows=np.array([len(nats)], np.float64),
    )
