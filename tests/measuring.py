"""Texts, runs and measurements small enough to check by hand."""

import jax
import numpy as np
import pytest
from sizes import DIMS, VOCAB, L

import posenc_jax
from configs import eval as defaults
from posenc_jax.config import Evaluation, schema
from posenc_jax.data.corpora import Split
from posenc_jax.data.sources.stdlib import Stdlib
from posenc_jax.data.texts import OwnText
from posenc_jax.data.tokenizer import Bytes
from posenc_jax.evaluation import check, evaluate, planning, windows
from posenc_jax.evaluation.cells import DOCUMENTS, Cell, Store
from posenc_jax.runs.parameters import Parts
from posenc_jax.runs.subject import Subject

LENGTHS = [L // 4, L, 2 * L, 4 * L]
STRIDE, LAST = L // 2, 1


def split(lengths=(70, 20, 200, 65, 64), answers=None, widths=None):
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(0).integers(0, VOCAB, starts[-1])
    digests = np.arange(len(lengths), dtype=np.uint64)
    return Split(tokens, starts, widths, answers, digests, lossless=True)


def text(longest=64, documents=10, per_document=10, spread=False, **options):
    source = split(**options)
    return windows.choose(
        source, longest, documents=documents, per_document=per_document, spread=spread
    )


@pytest.fixture
def subject(make_model):
    def make(name="rope", **fields):
        encoding = posenc_jax.build(name, DIMS, key=jax.random.key(1))
        facts = dict(name="run", step=7, seed=0, plain=encoding, extensible=True)
        facts |= dict(trained=L, tokenizer=Bytes(), digests=np.zeros(0, np.uint64))
        facts |= dict(text=OwnText(Stdlib(), 0, ""))
        return Subject(**(facts | {"parts": Parts(make_model(), encoding)} | fields))

    return make


@pytest.fixture
def settings():
    def make(**fields):
        config = defaults.get_config()
        config.update(multiples="0.25,1,2,4", stride=STRIDE, last=LAST, tokens_per_call=128)
        config.update(fields)
        return schema.from_fields(config.to_dict(), Evaluation)

    return make


@pytest.fixture
def measure(subject, settings, tmp_path):
    def run(evaluated=None, read=None, folder="cells", **fields):
        evaluated, config = evaluated or subject(), settings(**fields)
        lengths = check.lengths_of(config, evaluated.trained)
        read = read or text(lengths[-1])
        cells = planning.plan(config, evaluated, read, lengths)
        return evaluate.measure(config, evaluated, cells, Store(tmp_path / folder))

    return run


def made_cell(facts, nats, tokens, by_place=(), **others):
    """Return a cell of a text with one byte per token, all other sums zero."""
    zeros = {name: np.zeros(len(tokens)) for name in DOCUMENTS}
    given = dict(nats=nats, tokens=tokens, bytes=tokens, by_place=np.asarray(by_place, float))
    return Cell(facts, **(zeros | {"windows": np.ones(1)} | given | others))


def find(cells, **facts):
    facts = {"extension": "none", "window": None} | facts
    (cell,) = [c for c in cells if all(c.facts[k] == v for k, v in facts.items())]
    return cell
