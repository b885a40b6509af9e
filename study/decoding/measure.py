"""Measure what a dynamic extension's keys cost: python -m study.decoding.measure RUN...

Reads held-out windows of 8 L with each run of RoPE, token by token through a cache, and writes its
sums of losses to rows/RUN.csv.xz beside this file.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from posenc_jax.runtime import backend

backend.configure()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import models  # noqa: E402
import posenc_jax  # noqa: E402
from posenc_jax.config import Evaluation  # noqa: E402
from posenc_jax.encoding import Encoding  # noqa: E402
from posenc_jax.evaluation import evaluate  # noqa: E402
from posenc_jax.evaluation.losses import Reader  # noqa: E402
from posenc_jax.evaluation.windows import Text  # noqa: E402
from posenc_jax.runs.subject import Subject, load_subject  # noqa: E402

ROWS = Path(__file__).parent / "rows"
METHODS = ("dynamic_ntk", "dynamic_yarn", "dynamic_pi")
MULTIPLES = (1, 2, 4, 8)


class Losses(NamedTuple):
    """Nats of the targets of every window up to a length."""

    method: str
    semantics: str  # none, window, prefix or stale
    nats: np.ndarray  # [windows, N], of the last N targets before the length
    length: int


@jax.jit
def decode(model, plain: Encoding, steps: Encoding, rows, cache):  # [B, T + 1] -> [B, T]
    """Nats of every target: L tokens are read at once, each later one by its own encoding."""
    trained, model = plain.train_length, model.unstacked()
    tokens, targets = rows[:, :-1], rows[:, 1:]

    def step(cache, following):
        encoding, token, target = following
        nats, _, cache = model.losses_step(token[:, None], target[:, None], encoding, cache)
        return cache, nats[:, 0]

    begin, _, cache = model.losses_step(tokens[:, :trained], targets[:, :trained], plain, cache)
    _, rest = jax.lax.scan(step, cache, (steps, tokens[:, trained:].T, targets[:, trained:].T))
    return jnp.concatenate([begin, rest.T], axis=1)


def encodings_of_steps(method: str, plain: Encoding, length: int) -> Encoding:
    """The encoding of every step after L, stacked; its scale is that of the tokens read so far."""
    scales = np.arange(plain.train_length + 1, length + 1) / plain.train_length
    encodings = [posenc_jax.extend(method, plain, scale) for scale in scales]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *encodings)


def measured(subject: Subject, text: Text) -> Iterator[Losses]:
    """Losses without an extension and of every method under each of its semantics."""
    model, plain, trained = subject.parts.model, subject.plain, subject.trained
    lengths, last = [trained * multiple for multiple in MULTIPLES], trained // 4
    read = Reader(model, text.split.tokens, tokens_per_call=16_384)
    rows = text.split.tokens[text.starts[:, None] + np.arange(text.longest + 1)].astype(np.int32)
    yield Losses(
        "none", "none", read(plain, text.starts, text.longest, text.longest)[0], lengths[-1]
    )
    for method in METHODS:
        for length in lengths:
            encoding = posenc_jax.extend(method, plain, length / trained)
            yield Losses(method, "window", read(encoding, text.starts, length, last)[0], length)
        steps = encodings_of_steps(method, plain, text.longest)
        for semantics, rotated in (("prefix", False), ("stale", True)):
            cache = models.init_cache(model.config, plain, len(rows), text.longest, rotated=rotated)
            nats = jax.device_get(decode(model, plain, steps, rows, cache))
            yield Losses(method, semantics, nats, lengths[-1])


def sums_of(losses: Losses, text: Text, trained: int) -> pd.DataFrame:
    """Sums by document of the last L / 4 targets before every length that has them."""
    last, document = trained // 4, np.searchsorted(text.documents, text.document)
    parts = losses.nats.astype(np.float64).reshape(len(document), -1, last).sum(axis=2)
    count, documents = parts.shape[1], len(text.documents)
    sums = np.stack([np.bincount(document, part) for part in parts.T], axis=1)  # [documents, parts]
    return pd.DataFrame(
        {
            "method": losses.method,
            "semantics": losses.semantics,
            "length": np.tile(losses.length - last * np.arange(count)[::-1], documents),
            "document": np.repeat(np.arange(documents), count),
            "nats": sums.ravel().round(4),
            "targets": np.repeat(last * np.bincount(document), count),
        }
    )


def measure(run: Path) -> pd.DataFrame:
    subject = load_subject(run)
    config = Evaluation(windows=2, documents=100)
    text = evaluate.choose(config, subject, [MULTIPLES[-1] * subject.trained])
    print(f"{run.name}: {len(text.starts)} windows of {len(text.documents)} documents")
    found = []
    for losses in measured(subject, text):
        found.append(sums_of(losses, text, subject.trained))
        mean = losses.nats[:, -subject.trained // 4 :].mean()
        print(losses.method, losses.semantics, losses.length, f"{mean:.4f} nats", flush=True)
    return pd.concat(found)


if __name__ == "__main__":
    ROWS.mkdir(exist_ok=True)
    for run in map(Path, sys.argv[1:]):
        measure(run).to_csv(ROWS / f"{run.name}.csv.xz", index=False)
