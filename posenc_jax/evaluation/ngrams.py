"""Interpolated n-gram models, counted on a run's training text and scored on its targets."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.config import schema
from posenc_jax.data.batches import (
    Batch,
    Batches,
    MixedBatches,
    batches_of,
)
from posenc_jax.data.corpora import Corpus, Mixture, Split
from posenc_jax.data.prepare import prepare_corpora
from posenc_jax.data.texts import CHOOSE, digest_of
from posenc_jax.evaluation import protocols, records, windows
from posenc_jax.evaluation.cells import exists
from posenc_jax.evaluation.windows import Text
from posenc_jax.runs.subject import run_config
from posenc_jax.runtime.errors import ConfigError, DataError, Stop
from posenc_jax.runtime.files import read_csv, write_csv

STRENGTH = 5.0  # weight of the shorter context, in counts
TOKENS_AT_ONCE = 1 << 18
LARGE = 0x9E3779B97F4A7C15  # odd; base of hashes for vocabularies whose n-grams exceed 64 bits


def probabilities(
    queries: np.ndarray,  # [N, order], a target and the tokens before it; below 0: no token
    counted: Iterable[np.ndarray],  # each [n, order], n-grams of the text to count
    vocab: int,
) -> np.ndarray:  # [order, N], of the targets, given 0, 1, ... tokens before them
    """p_k = (n + 5 p_{k-1}) / (N + 5), where p_0 = 1 / V.

    n counts the last k tokens in the text, N the same tokens without the target. Memory grows with
    the queries, not with the text.
    """
    order = queries.shape[1]
    base = vocab + 2  # two values for "no token", which differ so that they never match
    base = base if base**order < 2**64 else LARGE
    query_keys = _keys(np.where(queries < 0, vocab, queries), base)
    tables = [tuple(_Table(keys) for keys in pair) for pair in query_keys]
    for grams in counted:
        for pair, keys in zip(
            tables, _keys(np.where(grams < 0, vocab + 1, grams), base), strict=True
        ):
            for table, text_keys in zip(pair, keys, strict=True):
                table.add(text_keys)
    by_order, shorter = [], np.full(len(queries), 1 / vocab)
    for targets, contexts in tables:
        shorter = (targets.counts() + STRENGTH * shorter) / (contexts.counts() + STRENGTH)
        by_order.append(shorter)
    return np.array(by_order)


def _keys(grams: np.ndarray, base: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Hash the last 1, 2, ... tokens of n-grams, with and without the target."""
    words = grams.astype(np.uint64)
    factor, keys = np.uint64(1), []
    whole = context = np.zeros(len(grams), np.uint64)
    for place in range(1, grams.shape[1] + 1):
        term = words[:, -place] * factor
        whole = whole + term
        context = context + (term if place > 1 else np.uint64(0))
        keys.append((whole, context))
        factor = np.uint64(int(factor) * base % 2**64)
    return keys


class _Table:
    """Counts of a fixed set of keys."""

    def __init__(self, keys: np.ndarray):
        self.keys, self.index = np.unique(keys, return_inverse=True)
        self.seen = np.zeros(len(self.keys), np.int64)

    def add(self, keys: np.ndarray) -> None:
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        hits = index[self.keys[index] == keys]
        self.seen += np.bincount(hits, minlength=len(self.keys))

    def counts(self) -> np.ndarray:
        return self.seen[self.index]


def ngrams_of(batch: Batch, order: int) -> np.ndarray:  # [n, order]
    """Every target of a batch with the tokens before it in its row; -1 before the row."""
    rows = np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)
    before = np.full((len(rows), max(0, order - 2)), -1, rows.dtype)
    padded = np.concatenate([before, rows], axis=1)
    all_grams = np.lib.stride_tricks.sliding_window_view(padded, order, axis=1)
    return all_grams[:, -batch.targets.shape[1] :][batch.weights > 0]


def training_ngrams(batches: Batches, rows: int, order: int) -> Iterator[np.ndarray]:
    """Yield the n-grams of the first rows of training, at most one epoch."""
    size = max(1, TOKENS_AT_ONCE // batches.length)
    rows = min(rows, batches.rows)
    for first in range(0, rows, size):
        yield ngrams_of(batches.at(range(first, min(first + size, rows))), order)


def ngrams_before(
    tokens: np.ndarray, places: np.ndarray, first: np.ndarray, order: int
) -> np.ndarray:
    """Tokens [N, order] at and before places [N]; -1 before each place's first token [N]."""
    index = places[:, None] + np.arange(1 - order, 1)
    inside = index >= first[:, None]
    return np.where(inside, tokens[np.where(inside, index, 0)].astype(np.int64), -1)


ORDERS = (2, 3, 4, 5, 6)


def measure_ngrams(
    workdir: Path, evaluation: str = "", *, whole: bool = False
) -> list[dict[str, Any]]:
    """Rows of eval/yardsticks.csv, with n-grams counted on the rows that a run was trained on, at
    most one epoch, or on its whole training text."""
    config = run_config(workdir)
    if config.init_from and not whole:
        raise ConfigError(
            f"{workdir} continues {config.init_from}, which read more text than the steps of this "
            "run: count the whole training text with --whole"
        )
    corpus = prepare_corpora(config.data.source, config.seed, quiet=True)
    facts, name, split, places, first = _targets(workdir, corpus, evaluation)
    batches, rows = _rows(batches_of(corpus, config), config, corpus, name)
    part = corpus.parts[name]
    order = max(ORDERS)
    counted = 0

    def counting() -> Iterator[np.ndarray]:
        nonlocal counted
        for part_read in training_ngrams(batches, batches.rows if whole else rows, order):
            counted += len(part_read)
            yield part_read

    grams = ngrams_before(split.tokens, places, first, order)
    nats = -np.log(probabilities(grams, counting(), part.vocab))
    widths = split.bytes_of
    size = len(places) if widths is None else int(widths[places].sum())
    return [
        {
            "evaluation": facts["evaluation"],
            "order": n,
            "last": facts["last"],
            "token_hash": facts["token_hash"],
            "tokens": len(places),
            "nll": float(nats[n - 1].mean()),
            "bpb": float(nats[n - 1].sum() / size / np.log(2)) if part.lossless else None,
            "counted": counted,
        }
        for n in ORDERS
    ]


def distinct_folders(folders: Iterable[Path], evaluation: str = "") -> list[Path]:
    """Keep one evaluated run of those with the same training text, amount and targets."""
    by_identity: dict[str, Path] = {}
    for folder in folders:
        if not exists(folder / "eval"):
            continue
        config = run_config(folder)
        names = ("data", "steps", "batch_size", "train_length")
        trained = {name: value for name, value in schema.as_fields(config).items() if name in names}
        try:
            cells = records.of_evaluation(records.read_cells(folder / "eval"), evaluation)
        except DataError as error:
            raise DataError(f"{folder}: {error}") from error
        scored = sorted({cell.facts["token_hash"] for cell in cells})
        by_identity.setdefault(json.dumps([trained, scored], sort_keys=True, default=str), folder)
    if not by_identity:
        raise DataError("none of these runs is evaluated yet: run eval_extrapolation.py")
    return list(by_identity.values())


def _rows(
    batches: Batches | MixedBatches, config, corpus: Corpus | Mixture, part: str
) -> tuple[Batches, int]:
    """Rows of one text, and the number of them read in training."""
    rows = config.steps * config.batch_size
    if isinstance(batches, Batches):
        return batches, rows
    number = list(corpus.parts).index(part)
    share = batches.counts[number] / batches.counts.sum()
    return batches.parts[number], round(rows * share)


def _targets(
    workdir: Path, corpus: Corpus | Mixture, evaluation: str
) -> tuple[dict[str, Any], str, Split, np.ndarray, np.ndarray]:
    """The targets of `same_token` in an evaluation of a run, from its record: the facts of a cell,
    the part of the run's text, its split, the index of each target in it and of the first token of
    its window."""
    record = records.earlier_record(workdir / "eval")
    cells = [
        cell.facts
        for cell in records.of_evaluation(record.cells, evaluation)
        if cell.facts["protocol"] == protocols.HEADLINE
    ]
    if not cells:
        raise DataError(
            f"{workdir}: its evaluation lacks {protocols.HEADLINE}; evaluate it with that protocol"
        )
    newest = max(cells, key=lambda facts: (facts["step"], facts["length"]))
    name, split = _split(workdir, corpus, newest)
    places = next(p for p in record.places if p.evaluation == newest["evaluation"])
    longest = places.length or newest["length"]
    split = windows.in_stretches(split, longest)
    starts = split.starts[places.document] + places.start
    text = Text(split, places.document, starts, longest)
    plan = protocols.find(protocols.HEADLINE).plan(text, text.longest, newest["last"])
    if plan is None or text.token_hash(plan) != newest["token_hash"]:
        raise DataError(f"{workdir}: its text changed since it was evaluated; evaluate it again")
    targets = plan.targets()[plan.scored()]
    return newest, name, split, targets, np.repeat(starts, newest["last"])


def _split(workdir: Path, corpus: Corpus | Mixture, facts: dict) -> tuple[str, Split]:
    """Name and split of the part of the run's text that an evaluation read."""
    for name, part in corpus.parts.items():
        if facts["data"] == part.fingerprint[:16]:
            return name, part.valid
        if facts["data"] == digest_of(CHOOSE, part)[:16]:
            return name, part.choose
    raise DataError(
        f"{workdir}: its evaluation {facts['evaluation']!r} read another text than the run's own, "
        "and n-grams are counted on the run's own"
    )


YARDSTICKS_FILE = "yardsticks.csv"
YARDSTICK_COLUMNS = ("evaluation", "order", "last", "token_hash", "tokens", "nll", "bpb", "counted")


def write_yardsticks(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Add rows to the file in an `eval/` folder, in place of those of the same evaluation."""
    new = {row["evaluation"] for row in rows}
    every = [*(row for row in read_yardsticks(folder) if row["evaluation"] not in new), *rows]
    write_csv(folder / YARDSTICKS_FILE, YARDSTICK_COLUMNS, every)
    return folder / YARDSTICKS_FILE


def read_yardsticks(folder: Path) -> list[dict[str, Any]]:
    """Read the rows in an `eval/` folder; none without a file."""
    path = folder / YARDSTICKS_FILE
    if not path.exists():
        return []
    kinds = {"order": int, "last": int, "tokens": int, "counted": int, "nll": float, "bpb": float}
    try:
        return [
            {n: kinds.get(n, str)(row[n]) if row[n] else None for n in YARDSTICK_COLUMNS}
            for row in read_csv(path)
        ]
    except (AttributeError, KeyError, ValueError) as error:
        raise Stop(f"{path} is damaged: {error!r}; run scripts/yardstick.py again") from error
