"""n-grams as yardsticks: counted on what a run was trained on, scored on its very targets."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.config import schema
from posenc_jax.data import mixtures
from posenc_jax.data.batches import Batches, MixedBatches
from posenc_jax.data.corpora import Corpus, Split
from posenc_jax.errors import ConfigError, DataError, Stop
from posenc_jax.evaluation import ngrams, protocols, records, sums_file, windows
from posenc_jax.evaluation.texts import CHOOSE, digest_of
from posenc_jax.evaluation.windows import Text
from posenc_jax.runs.subject import run_config

ORDERS = (2, 3, 4, 5, 6)


class Asked(NamedTuple):
    """The targets of `same_token` in an evaluation of a run."""

    evaluation: str
    split: Split
    places: np.ndarray  # [N], where each target is in the split
    first: np.ndarray  # [N], the first token of its window
    last: int
    token_hash: str
    part: str  # of the run's text: the name in its mixture


def measure(workdir: Path, evaluation: str = "", *, whole: bool = False) -> list[dict[str, Any]]:
    """Rows of eval/yardsticks.csv, counted on the rows that a run was trained on, an epoch at most,
    or on its whole training text."""
    config = run_config(workdir)
    if config.init_from and not whole:
        raise ConfigError(
            f"{workdir} went on from {config.init_from}, which read more text than its own steps "
            "did: count the whole training text, --whole"
        )
    corpus = mixtures.prepare(config.data.source, config.seed, quiet=True)
    asked = _asked(workdir, corpus, evaluation)
    batches, rows = _rows(mixtures.batches(corpus, config), config, corpus, asked.part)
    part = corpus.parts[asked.part]
    order = max(ORDERS)
    counted = _Counting(ngrams.trained_on(batches, batches.rows if whole else rows, order))
    questions = ngrams.before(asked.split.tokens, asked.places, asked.first, order)
    nats = -np.log(ngrams.probabilities(questions, counted, part.vocab))
    widths = asked.split.bytes_of
    size = len(asked.places) if widths is None else int(widths[asked.places].sum())
    return [
        {
            "evaluation": asked.evaluation,
            "order": n,
            "last": asked.last,
            "token_hash": asked.token_hash,
            "tokens": len(asked.places),
            "nll": float(nats[n - 1].mean()),
            "bpb": float(nats[n - 1].sum() / size / np.log(2)) if part.lossless else None,
            "counted": counted.tokens,
        }
        for n in ORDERS
    ]


def distinct(folders: Iterable[Path], evaluation: str = "") -> list[Path]:
    """One evaluated run of all that read the same targets after as much training on one text."""
    found: dict[str, Path] = {}
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
        found.setdefault(json.dumps([trained, scored], sort_keys=True, default=str), folder)
    if not found:
        raise DataError("none of these runs is evaluated yet: run eval_extrapolation.py")
    return list(found.values())


class _Counting:
    """Passes arrays on and counts their rows."""

    def __init__(self, arrays):
        self.arrays, self.tokens = arrays, 0

    def __iter__(self):
        for array in self.arrays:
            self.tokens += len(array)
            yield array


def _rows(
    batches: Batches | MixedBatches, config, corpus: Corpus | mixtures.Mixture, part: str
) -> tuple[Batches, int]:
    """The rows of one text, and how many of them training read."""
    rows = config.steps * config.batch_size
    if isinstance(batches, Batches):
        return batches, rows
    number = list(corpus.parts).index(part)
    share = batches.counts[number] / batches.counts.sum()
    return batches.parts[number], round(rows * share)


def _asked(workdir: Path, corpus: Corpus | mixtures.Mixture, evaluation: str) -> Asked:
    """The targets of an evaluation of the run's own text, found again by their record."""
    if not sums_file.exists(workdir / "eval"):
        raise Stop(f"{workdir} is not evaluated yet: run eval_extrapolation.py --workdir={workdir}")
    record = records.before(workdir / "eval")
    cells = [
        cell.facts
        for cell in records.of_evaluation(record.cells, evaluation)
        if cell.facts["protocol"] == protocols.HEADLINE
    ]
    if not cells:
        raise DataError(f"{workdir}: {protocols.HEADLINE} is not in its evaluation; ask for it")
    newest = max(cells, key=lambda facts: (facts["step"], facts["length"]))
    name, split = _split(workdir, corpus, newest)
    split = windows.in_stretches(split, newest["length"])
    places = next(one for one in record.places if one.evaluation == newest["evaluation"])
    starts = split.starts[places.document] + places.start
    text = Text(split, places.document, starts, newest["length"])
    last = newest["last"]
    plan = protocols.find(protocols.HEADLINE).plan(text, text.longest, last)
    if plan is None or text.token_hash(plan) != newest["token_hash"]:
        raise DataError(f"{workdir}: its text is not the one that was evaluated; evaluate it again")
    targets = (starts[:, None] + text.longest + np.arange(1 - last, 1)).reshape(-1)
    return Asked(
        newest["evaluation"],
        split,
        targets,
        np.repeat(starts, last),
        last,
        newest["token_hash"],
        name,
    )


def _split(workdir: Path, corpus: Corpus | mixtures.Mixture, facts: dict) -> tuple[str, Split]:
    """Which part of the run's text an evaluation read."""
    for name, part in corpus.parts.items():
        if facts["data"] == part.fingerprint[:16]:
            return name, part.valid
        if facts["data"] == digest_of(CHOOSE, part)[:16]:
            return name, part.choose
    raise DataError(
        f"{workdir}: its evaluation {facts['evaluation']!r} read another text than the run's own, "
        "of which n-grams are counted"
    )
