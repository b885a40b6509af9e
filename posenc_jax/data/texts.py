"""The text that an evaluation reads: a run's own, wherever its files are now, or another one."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from posenc_jax import registry
from posenc_jax.data import corpora, sources
from posenc_jax.data.corpora import Corpus, Mixture, Split
from posenc_jax.data.prepare import prepare, prepare_corpora
from posenc_jax.data.sources import Documents, EvaluationData, Origin, plain_word
from posenc_jax.data.sources._files import Files
from posenc_jax.data.sources.mixture import Mixture as MixtureSource
from posenc_jax.data.sources.unknown import Unknown
from posenc_jax.data.tokenizer import Encoder, Unavailable
from posenc_jax.runtime.errors import ConfigError, DataError

HELD_OUT, CHOOSE = "held-out", "choose"  # names of evaluations of a run's own text
OPTIONS = ("field", "split", "name", "revision", "begins")  # of a source, beside its path


class OwnText(NamedTuple):
    """The text of a run: its source, and what identifies its tokens."""

    source: Origin
    seed: int
    fingerprint: str  # of its tokens


class Source(NamedTuple):
    split: Split
    words: str
    fingerprint: str
    name: str  # of an evaluation of it, if no other is given


def text_of(
    asked: EvaluationData,
    own: OwnText,
    encoder: Encoder | Unavailable,
    stopping: Sequence[str] = (),
) -> Source:
    """The documents that an evaluation reads: the run's own that it was not trained on, or those of
    another text."""
    origin = own.source
    if asked.tokens:
        corpus = corpora.of_folder(asked.tokens)
        if corpus.fingerprint == own.fingerprint:
            return _part(corpus, origin, asked.part)
        return _prepared(encoder, corpus, asked)
    if _own_part(asked, origin) is None:
        return _other(asked, own, encoder, stopping)
    if isinstance(origin, Unknown):
        raise ConfigError("\n".join(origin.mistakes()))
    if isinstance(origin, Files) and (missing := origin.missing()):
        raise DataError(
            f"the run's text is gone: {'; '.join(missing)}. If it moved, name its place with "
            "train.py --workdir=RUN --config.data.path=NEW; of an exported run in its config.json"
        )
    known = None if isinstance(encoder, Unavailable) else encoder
    corpus = prepare_corpora(origin, own.seed, known, cache=asked.cache, stopping=stopping)
    if corpus.fingerprint != own.fingerprint:
        raise DataError(
            "the run's text changed since it was trained, and its held-out documents with it: they "
            "may have been trained on. Restore the text, or name another one (data.source, "
            "data.path)"
        )
    return part_of(corpus, origin, asked)


def own_split(asked: EvaluationData, origin: Origin, corpus: Corpus | Mixture) -> Split | None:
    """The split of a run's own text that an evaluation will read; None if it names another text,
    whose files must be there."""
    if asked.tokens:
        corpora.of_folder(asked.tokens)
    elif _own_part(asked, origin) is not None:
        return part_of(corpus, origin, asked).split
    else:
        _another(asked, origin, "bytes").files()
    return None


def part_of(corpus: Corpus | Mixture, origin: Origin, asked: EvaluationData) -> Source:
    """A split of a text, or of one text of a mixture: the first if none is named."""
    if not isinstance(corpus, Mixture) or not isinstance(origin, MixtureSource):
        assert isinstance(corpus, Corpus)
        return _part(corpus, origin, asked.part)
    name = _own_part(asked, origin)
    assert name is not None
    source = _part(corpus.parts[name], origin.parts[name], asked.part)
    if corpus.parts[name] is corpus.first:
        return source
    return source._replace(name=f"{name}-{CHOOSE}" if asked.part == CHOOSE else name)


def _own_part(asked: EvaluationData, origin: Origin) -> str | None:
    """The text of a run that an evaluation reads, the first if it names none; None: it names
    another text, or another place."""
    parts = origin.parts if isinstance(origin, MixtureSource) else {origin.kind(): origin}
    for name, part in parts.items():
        own = {option: getattr(part, option, None) for option in OPTIONS}
        own["split"] = getattr(part, "valid_split", None) or own["split"]
        same = all(getattr(asked, option) in ("", value) for option, value in own.items())
        named = asked.source in (name, part.kind()) and asked.path == getattr(part, "path", "")
        if not asked.source or (named and same):
            return name
    return None


def _other(
    asked: EvaluationData,
    own: OwnText,
    encoder: Encoder | Unavailable,
    stopping: Sequence[str],
) -> Source:
    """All documents of another text."""
    other = _another(asked, own.source, encoder.file)
    assert not isinstance(encoder, Unavailable)  # which has no file
    corpus = prepare(other, own.seed, encoder, stopping=stopping)
    return Source(corpus.train, other.description, corpus.fingerprint, _free(other.short_name))


def _another(asked: EvaluationData, origin: Origin, tokenizer: str) -> Documents:
    """The text that an evaluation names, all of it held out; options not given are the run's."""
    _refuse_part(asked)
    if registry.is_task(asked.source):
        raise ConfigError(
            f"data.source = {asked.source!r} names a task of a mixture, and this run has none "
            "with it; without data.source the run's own text is read"
        )
    same = (asked.source, asked.path) == (origin.kind(), getattr(origin, "path", ""))
    own = (*OPTIONS, "limit") if same else ("field", "split")
    given = {name: getattr(origin, name, None) for name in own}
    given |= {name: value for name in OPTIONS if (value := getattr(asked, name))}
    given |= {"cut_one": False}
    read = {field.name for field in sources.find(asked.source).options({})}
    given = {name: value for name, value in given.items() if name in read}
    fixed = {"source": asked.source, "path": asked.path, "tokenizer": tokenizer}
    fixed |= {"cache": asked.cache, "valid_fraction": 0.0}
    other, problems = sources.read(given | fixed, 2)
    if problems:
        raise ConfigError("\n".join(problems))
    assert isinstance(other, Documents)
    return other


def _part(corpus: Corpus, origin: Origin, part: str) -> Source:
    parts = {
        "held_out": (corpus.valid, "held out of", HELD_OUT, "valid_fraction"),
        "choose": (corpus.choose, "to choose on, of", CHOOSE, "choose_fraction"),
    }
    split, words, name, field = parts[part]
    if not len(split.lengths):
        raise DataError(
            f"data.part={part}: the run kept no documents for it; train it with "
            f"data.{field} above 0, or name another text (data.source, data.path)"
        )
    read = corpus.fingerprint
    if part != "held_out":  # counts as a text of its own
        read = hashlib.sha256(f"{read} {name}".encode()).hexdigest()
    return Source(split, f"{words} {origin.description}", read, name)


def _prepared(encoder: Encoder | Unavailable, corpus: Corpus, asked: EvaluationData) -> Source:
    """All documents of another text, from prepared tokens."""
    _refuse_part(asked)
    if encoder.hash != corpus.card.get("tokenizer_hash"):
        raise DataError(
            f"the tokens in {asked.tokens} are of the tokenizer {corpus.card['tokenizer']}, and "
            f"the run was trained on those of {encoder.name}, which is another one"
        )
    name = _free(plain_word(Path(asked.tokens).name) or "tokens")
    return Source(corpus.whole(), f"tokens:{asked.tokens}", corpus.fingerprint, name)


def _refuse_part(asked: EvaluationData) -> None:
    if asked.part != "held_out":
        raise ConfigError(
            f"data.part = {asked.part!r} is a part of the run's own text, and "
            f"{asked.tokens or asked.path or asked.source} is another text"
        )


def _free(name: str) -> str:
    """The name of another text, beside those of the run's own."""
    return f"{name}-text" if name in (HELD_OUT, CHOOSE) else name
