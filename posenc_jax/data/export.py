"""Write the tokens of a corpus into a folder, for machines without the text and the tokenizer."""

import dataclasses
from pathlib import Path

import numpy as np

from posenc_jax.data import corpora, tokenizer
from posenc_jax.data.corpora import OF_TOKENS, SPLITS, TOKENIZER, WIDTHS, Corpus, Split
from posenc_jax.runtime.errors import ConfigError, DataError, Stop


def write(corpus: Corpus, folder: Path, limit: int | None = None) -> Corpus:
    """Write the documents of a corpus, up to `limit` training tokens, with their card.

    The bytes of text of a token are stored per entry of the vocabulary, and per place only for
    exceptions.
    """
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
    made = {name: _chosen(split, kept[name]) for name, split in splits.items()}
    usual = _usual_widths(made.values(), corpus.vocab)
    if usual is not None:
        np.save(folder / WIDTHS, usual)
    facts = {name: _save(folder, name, split, usual) for name, split in made.items()}
    if isinstance(corpus.encoder, tokenizer.Learned):
        (folder / TOKENIZER).write_text(corpus.encoder.tokenizer.to_str(), encoding="utf-8")
    left_out = sum(int((~chosen).sum()) for chosen in kept.values())
    card = {name: corpus.card[name] for name in ("vocab", "dtype", "tokenizer", "lossy")}
    return card | {
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


def _chosen(split: Split, kept: np.ndarray) -> Split:
    there = np.repeat(kept, split.lengths)
    of_tokens = {name: getattr(split, name) for name in OF_TOKENS}
    return dataclasses.replace(
        split,
        starts=np.concatenate([[0], np.cumsum(split.lengths[kept])]),
        digests=split.digests[kept],
        groups=None if split.groups is None else split.groups[kept],
        **{name: None if column is None else column[there] for name, column in of_tokens.items()},
    )


def _usual_widths(splits, vocab: int) -> np.ndarray | None:  # [V], uint16
    """Most frequent number of bytes of each token; None if all are one byte."""
    counted: dict[int, int] = {}
    for split in splits:
        if split.bytes_of is not None and len(split.tokens):
            pairs = split.tokens.astype(np.int64) * 2**16 + split.bytes_of
            for pair, count in zip(*np.unique(pairs, return_counts=True), strict=True):
                counted[int(pair)] = counted.get(int(pair), 0) + int(count)
    if not counted:
        return None
    usual = np.zeros(vocab, np.uint16)
    for pair, _ in sorted(counted.items(), key=lambda item: (item[1], -item[0])):
        usual[pair >> 16] = pair & 0xFFFF  # the most frequent comes last and wins
    return usual


def _save(folder: Path, name: str, split: Split, usual: np.ndarray | None) -> dict:
    (folder / f"{name}.tokens").write_bytes(split.tokens.tobytes())
    for kind, values in (("answers", split.answers), ("gaps", split.gaps)):
        if values is not None:
            (folder / f"{name}.{kind}").write_bytes(values.tobytes())
    size = len(split.tokens)
    if usual is not None:
        widths = np.zeros(0, np.uint16) if split.bytes_of is None else split.bytes_of
        where = np.flatnonzero(usual[split.tokens] != widths)
        np.save(folder / f"{name}.odd.npy", np.stack([where, widths[where]], 1).astype(np.uint32))
        size = int(widths.sum(dtype=np.int64))
    starts = split.starts.astype(np.int64)
    return corpora.save_documents(folder, name, starts, split.digests, split.groups, size)
