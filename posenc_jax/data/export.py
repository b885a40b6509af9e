"""Write the tokens of a corpus into a folder, for machines without the text and the tokenizer."""

from contextlib import closing
from pathlib import Path

import numpy as np

from posenc_jax.data import corpora, tokenizer
from posenc_jax.data.corpora import FORMAT, SPLITS, TOKENIZER, Corpus, Split, Writer
from posenc_jax.runtime.errors import ConfigError, DataError, Stop


def write(corpus: Corpus, folder: Path, limit: int | None = None) -> Corpus:
    """Write the documents of a corpus, up to `limit` training tokens, with their card."""
    if folder.exists():
        raise ConfigError(f"--tokens_out={folder} exists already; name a new folder")
    try:
        with corpora.building(folder) as scratch:
            corpora.save_card(scratch, _write(corpus, scratch, limit))
    except OSError as error:
        raise Stop(f"cannot write {folder}: {error}") from error
    return corpora.of_folder(str(folder))


def _write(corpus: Corpus, folder: Path, limit: int | None) -> dict:
    splits = {name: getattr(corpus, name) for name in SPLITS}
    kept = {name: limited(split, name, corpus, limit) for name, split in splits.items()}
    if not kept["train"].any():
        raise DataError(f"--limit={limit:,} is less than the first document; raise it")
    facts = {}
    for name, split in splits.items():
        with closing(Writer(folder, name, split.tokens.dtype)) as writer:
            facts[name] = _copy(split, kept[name], writer)
    if isinstance(corpus.encoder, tokenizer.Learned):
        (folder / TOKENIZER).write_text(corpus.encoder.tokenizer.to_str(), encoding="utf-8")
    left_out = sum(int((~chosen).sum()) for chosen in kept.values())
    card = {name: corpus.card[name] for name in ("vocab", "dtype", "tokenizer", "lossy")}
    return card | {
        "format": FORMAT,
        "counts": {"documents": sum(f["documents"] for f in facts.values()), "left_out": left_out},
        "splits": facts,
        **{name: corpus.card[name] for name in ("cut", "chance", "task") if name in corpus.card},
        "tokenizer_hash": corpus.encoder.hash,
        "limit": limit,
        "made_from": {
            "fingerprint": corpus.fingerprint,
            "source": corpus.card["identity"]["source"],
            "counts": corpus.card["counts"],
            "splits": corpus.card["splits"],
        },
    }


def limited(split: Split, name: str, corpus: Corpus, limit: int | None) -> np.ndarray:
    """Mask [documents] of those kept, taken in order of their digests.

    Other splits than training are cut to the same share, of at least one document.
    """
    if limit is None or not len(split.lengths):
        return np.ones(len(split.lengths), bool)
    order = np.argsort(split.digests, kind="stable")
    ends = np.cumsum(split.lengths[order])
    share = limit / len(corpus.train.tokens)
    fits = ends <= limit if name == "train" else ends - split.lengths[order] < share * ends[-1]
    kept = np.zeros(len(order), bool)
    kept[order[fits]] = True
    return kept


def _copy(split: Split, kept: np.ndarray, writer: Writer) -> dict:
    """Write the kept documents of a split, and count them."""
    for number in np.flatnonzero(kept):
        place = slice(*split.starts[number : number + 2])
        columns = (split.bytes_of, split.answers, split.gaps)
        bytes_of, *marks = (None if column is None else column[place] for column in columns)
        tokens = split.tokens[place]
        size = len(tokens) if bytes_of is None else int(bytes_of.sum(dtype=np.int64))
        group = None if split.groups is None else split.groups[number]
        writer.add(tokens, bytes_of)
        writer.end(split.digests[number], size, group, *marks)
    return writer.finish()
