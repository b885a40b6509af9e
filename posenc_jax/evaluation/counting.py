"""n-gram baselines: counted on the training text of a run, scored on the run's own targets."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.config import schema
from posenc_jax.data import mixtures
from posenc_jax.data.batches import Batches, MixedBatches
from posenc_jax.data.corpora import Corpus, Split
from posenc_jax.data.texts import CHOOSE, digest_of
from posenc_jax.errors import ConfigError, DataError, Stop
from posenc_jax.evaluation import ngrams, protocols, records, sums_file, windows
from posenc_jax.evaluation.windows import Text
from posenc_jax.runs.subject import run_config

ORDERS = (2, 3, 4, 5, 6)


class Targets(NamedTuple):
    """The targets of `same_token` in an evaluation of a run."""

    evaluation: str
    split: Split
    places: np.ndarray  # [N], index of each target in the split
    first: np.ndarray  # [N], index of the first token of its window
    last: int
    token_hash: str
    part: str  # of the run's mixture


def measure(workdir: Path, evaluation: str = "", *, whole: bool = False) -> list[dict[str, Any]]:
    """Rows of eval/yardsticks.csv, with n-grams counted on the rows that a run was trained on, at
    most one epoch, or on its whole training text."""
    config = run_config(workdir)
    if config.init_from and not whole:
        raise ConfigError(
            f"{workdir} continues {config.init_from}, which read more text than the steps of this "
            "run: count the whole training text with --whole"
        )
    corpus = mixtures.prepare(config.data.source, config.seed, quiet=True)
    targets = _targets(workdir, corpus, evaluation)
    batches, rows = _rows(mixtures.batches(corpus, config), config, corpus, targets.part)
    part = corpus.parts[targets.part]
    order = max(ORDERS)
    counted = _Counting(ngrams.trained_on(batches, batches.rows if whole else rows, order))
    grams = ngrams.before(targets.split.tokens, targets.places, targets.first, order)
    nats = -np.log(ngrams.probabilities(grams, counted, part.vocab))
    widths = targets.split.bytes_of
    size = len(targets.places) if widths is None else int(widths[targets.places].sum())
    return [
        {
            "evaluation": targets.evaluation,
            "order": n,
            "last": targets.last,
            "token_hash": targets.token_hash,
            "tokens": len(targets.places),
            "nll": float(nats[n - 1].mean()),
            "bpb": float(nats[n - 1].sum() / size / np.log(2)) if part.lossless else None,
            "counted": counted.tokens,
        }
        for n in ORDERS
    ]


def distinct(folders: Iterable[Path], evaluation: str = "") -> list[Path]:
    """Keep one evaluated run of those with the same training text, amount and targets."""
    by_identity: dict[str, Path] = {}
    for folder in folders:
        if not sums_file.exists(folder / "eval"):
            continue
        config = run_config(folder)
        names = ("data", "steps", "batch_size", "train_length")
        trained = {name: value for name, value in schema.as_fields(config).items() if name in names}
        try:
            cells = records.of_evaluation(records.read(folder / "eval"), evaluation)
        except DataError as error:
            raise DataError(f"{folder}: {error}") from error
        scored = sorted({cell.facts["token_hash"] for cell in cells})
        by_identity.setdefault(json.dumps([trained, scored], sort_keys=True, default=str), folder)
    if not by_identity:
        raise DataError("none of these runs is evaluated yet: run eval_extrapolation.py")
    return list(by_identity.values())


class _Counting:
    """Iterate over arrays and count their rows."""

    def __init__(self, arrays):
        self.arrays, self.tokens = arrays, 0

    def __iter__(self):
        for array in self.arrays:
            self.tokens += len(array)
            yield array


def _rows(
    batches: Batches | MixedBatches, config, corpus: Corpus | mixtures.Mixture, part: str
) -> tuple[Batches, int]:
    """Rows of one text, and the number of them read in training."""
    rows = config.steps * config.batch_size
    if isinstance(batches, Batches):
        return batches, rows
    number = list(corpus.parts).index(part)
    share = batches.counts[number] / batches.counts.sum()
    return batches.parts[number], round(rows * share)


def _targets(workdir: Path, corpus: Corpus | mixtures.Mixture, evaluation: str) -> Targets:
    """Reconstruct the targets of an evaluation of the run's own text from its record."""
    if not sums_file.exists(workdir / "eval"):
        raise Stop(f"{workdir} is not evaluated yet: run eval_extrapolation.py --workdir={workdir}")
    record = records.before(workdir / "eval")
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
    split = windows.in_stretches(split, newest["length"])
    places = next(p for p in record.places if p.evaluation == newest["evaluation"])
    starts = split.starts[places.document] + places.start
    text = Text(split, places.document, starts, newest["length"])
    last = newest["last"]
    plan = protocols.find(protocols.HEADLINE).plan(text, text.longest, last)
    if plan is None or text.token_hash(plan) != newest["token_hash"]:
        raise DataError(f"{workdir}: its text changed since it was evaluated; evaluate it again")
    indices = (starts[:, None] + text.longest + np.arange(1 - last, 1)).reshape(-1)
    return Targets(
        newest["evaluation"],
        split,
        indices,
        np.repeat(starts, last),
        last,
        newest["token_hash"],
        name,
    )


def _split(workdir: Path, corpus: Corpus | mixtures.Mixture, facts: dict) -> tuple[str, Split]:
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
