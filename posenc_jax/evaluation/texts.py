"""Which text an evaluation reads, where its files are now, and what it is called."""

import dataclasses
import hashlib
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from posenc_jax.config import Evaluation, Training
from posenc_jax.config.resolve import trained_length
from posenc_jax.config.schema import EvaluationData
from posenc_jax.data import corpora, mixtures, sources
from posenc_jax.data.corpora import Corpus, Split
from posenc_jax.data.mixtures import Mixture
from posenc_jax.data.sources import Documents, Origin, plain_word
from posenc_jax.data.sources._files import Files
from posenc_jax.data.sources.mixture import Mixture as MixtureSource
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.errors import ConfigError, DataError
from posenc_jax.evaluation import planning, records, windows
from posenc_jax.runs.subject import Subject

CHOOSE = "choose"  # the name of an evaluation of the third split
OPTIONS = ("field", "split", "name", "revision", "begins")  # of a source, beside its path


class Source(NamedTuple):
    split: Split
    words: str
    fingerprint: str
    name: str  # of an evaluation of it, if no other is given


def check_readable(config: Evaluation, run: Training) -> None:
    """Refuse before a run is trained what would leave its evaluation nothing to read: no document
    of its own text that is long enough, no file of another one."""
    asked, origin = config.data, run.data.source
    parts = origin.parts if isinstance(origin, MixtureSource) else {}
    if asked.tokens:
        corpora.prepared(asked.tokens)
        return
    if asked.source not in ("", *parts) and not _is_place_of(asked, origin):
        _another(asked, origin, "bytes").files()
        return
    corpus = mixtures.prepare(origin, run.seed)
    name = asked.source if asked.source in parts else next(iter(corpus.parts))
    split = _part(corpus.parts[name], parts.get(name, origin), asked.part).split
    longest = max(planning.lengths_of(config, trained_length(run)))
    windows.choose(windows.in_stretches(split, longest), longest)


def text_of(asked: EvaluationData, subject: Subject, stopping: Sequence[str]) -> Source:
    """The documents that an evaluation reads: the run's own that it was not trained on, or those of
    another text."""
    origin = subject.config.data.source
    if asked.tokens:
        corpus = corpora.prepared(asked.tokens)
        if not corpus.is_that_of(subject.card):
            return _prepared(subject, corpus, asked)
        return _own(subject, corpus, origin, asked.part)
    run = subject.config
    if isinstance(origin, MixtureSource) and asked.source in ("", *origin.parts):
        return _own_part(subject, origin, asked, stopping)
    same = not asked.source or _is_own(asked, origin)
    moved = None if same else _moved(subject, origin, asked)
    if same or moved is not None:
        origin = moved or origin
        assert isinstance(origin, Documents | Tokens)
        if isinstance(origin, Files) and not _is_there(origin):
            raise DataError(
                f"the run's text is no longer at {origin.path}. To read it where it is now: python "
                f"eval_extrapolation.py {shlex.quote(f'--workdir={subject.workdir}')} "
                f"--config.data.source={origin.kind()} --config.data.path=NEW"
            )
        corpus = corpora.prepare(origin, run.seed, stopping=stopping)
        return _own(subject, corpus, origin, asked.part)
    if asked.valid_path:
        raise DataError(
            "data.valid_path is for a run's own text at another place, which data.source and "
            "data.path name; they name another text. To evaluate on a text give data.path alone"
        )
    other = _another(asked, origin, subject.tokenizer_file)
    corpus = corpora.prepare(other, run.seed, stopping=stopping)
    return Source(corpus.train, other.description, corpus.fingerprint, other.short_name)


def _is_place_of(asked: EvaluationData, origin: Origin) -> bool:
    """Whether an evaluation names the source and the path of the run's own text."""
    return (asked.source, asked.path) == (origin.kind(), getattr(origin, "path", ""))


def _is_own(asked: EvaluationData, origin: Origin) -> bool:
    """Whether what an evaluation names is the run's own text, where that is."""
    own = {name: [getattr(origin, name, None)] for name in (*OPTIONS, "valid_path")}
    own["split"].append(getattr(origin, "valid_split", None))
    return _is_place_of(asked, origin) and all(
        getattr(asked, name) in ("", *values) for name, values in own.items()
    )


def _another(asked: EvaluationData, origin: Origin, tokenizer: str) -> Documents:
    """The text that an evaluation names, all of it held out; options not given are the run's."""
    own = ("field", "split", *(OPTIONS if _is_place_of(asked, origin) else ()))
    usual = {name: getattr(origin, name, None) for name in own}
    given = {name: getattr(asked, name) or usual.get(name) for name in OPTIONS}
    read = {field.name for field in sources.find(asked.source).options({})}
    given = {name: value for name, value in given.items() if name in read}
    fixed = {"source": asked.source, "path": asked.path, "tokenizer": tokenizer}
    fixed |= {"cache": getattr(origin, "cache", ""), "valid_fraction": 0.0}
    other, problems = sources.read(
        given | fixed | ({"cut_one": False} if "cut_one" in read else {}), 2
    )
    if problems:
        raise ConfigError("\n".join(problems))
    assert isinstance(other, Documents)
    return other


def _moved(subject: Subject, origin: Origin, asked: EvaluationData) -> Files | None:
    """The run's source with another place of its files, if they are gone from their own."""
    key = subject.card.get("text")
    if key is None or not isinstance(origin, Files) or asked.source != origin.kind():
        return None
    if any(getattr(asked, name) for name in OPTIONS):
        return None
    valid_path = asked.valid_path or origin.valid_path
    moved = dataclasses.replace(origin, path=asked.path, valid_path=valid_path)
    if _is_there(origin) or not _is_there(moved):
        return None
    with corpora.remembered(corpora.cache_folder(moved.cache)) as hashes:
        found = corpora.described(moved, subject.config.seed, hashes)
    return moved if found.key == key else None


def _is_there(files: Files) -> bool:
    """Whether the files of a text are at the place it names."""
    with suppress(DataError):
        files.held_out_files()
        return bool(files.files())
    return False


def _own_part(
    subject: Subject, origin: MixtureSource, asked: EvaluationData, stopping: Sequence[str]
) -> Source:
    """One text of the run's mixture; the first if none is named."""
    mixture = mixtures.prepare(origin, subject.config.seed, stopping=stopping)
    assert isinstance(mixture, Mixture)
    name = asked.source or next(iter(mixture.parts))
    _check_own(subject, mixture)
    source = _part(mixture.parts[name], origin.parts[name], asked.part)
    if mixture.parts[name] is mixture.first:
        return source
    return source._replace(name=f"{name}-{CHOOSE}" if asked.part == CHOOSE else name)


def _own(subject: Subject, corpus: Corpus, origin: Origin, part: str) -> Source:
    """A part of the run's own text that it was not trained on."""
    _check_own(subject, corpus)
    return _part(corpus, origin, part)


def _part(corpus: Corpus, origin: Origin, part: str) -> Source:
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
    return Source(split, f"{words} {origin.description}", read, name)


def _prepared(subject: Subject, corpus: Corpus, asked: EvaluationData) -> Source:
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
            f"the run was trained on those of {own.name}, which is another one"
        )
    name = plain_word(Path(asked.tokens).name) or "tokens"
    return Source(corpus.whole(), f"tokens:{asked.tokens}", corpus.fingerprint, name)


def digest_of(part: str, corpus: Corpus) -> str:
    """Digest of a part of a text, which counts as a text of its own."""
    return hashlib.sha256(f"{corpus.fingerprint} {part}".encode()).hexdigest()


def _check_own(subject: Subject, corpus: Corpus | Mixture) -> None:
    if not corpus.is_that_of(subject.card):
        raise DataError(
            "the run's text changed since it was trained, and its held-out documents with it: they "
            "may have been trained on. Restore the text, or name another one (data.source, "
            "data.path)"
        )
