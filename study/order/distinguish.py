"""Do a model's scores tell positions and tokens apart?

python -m study.order.distinguish BOOKS OUT RUN@METHOD...

Measures the two shares of arXiv:2605.15514 with queries and keys of the model, before rotation, of
random tokens of books, at random places of a context of n tokens: how often a key scores higher in
the nearest quarter than in the farthest, and how often two keys at one place are in the order that
they have at another. 0.5 is a coin. OUT gets a row per run, method, n, layer and book.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from posenc_jax.attention.plain import rotate
from posenc_jax.config import Evaluation
from posenc_jax.data.batches import with_prefix
from posenc_jax.data.sources import EvaluationData
from posenc_jax.evaluation import evaluate, methods
from posenc_jax.runs.subject import load_subject

READ, BOOKS, DRAWS = 512, 8, 256  # tokens read of a book, and draws of a layer and head
CONTEXTS = [2**n for n in range(6, 17)]  # 64 to 65,536


def scores(q, k, encoding, back):  # [H, N, K] twice, [N] -> [H, N]
    """Logits of queries at the end of a context for keys so many tokens back."""
    farthest = int(CONTEXTS[-1])
    here = encoding.phase(jnp.full(back.shape, farthest, jnp.int32))
    there = encoding.phase(farthest - back)
    q = rotate(q[None], here.q_cos, here.q_sin, here.layout)
    k = rotate(k[None], there.k_cos, there.k_sin, there.layout)
    return jnp.sum(q * k, axis=-1)[0]


@jax.jit
def shares(q, k, encoding, rng, context):  # [H, T, K], [G, T, K] -> [2]
    k = jnp.repeat(k, len(q) // len(k), axis=0)
    draws = jax.random.split(rng, 6)
    at, first, second = (jax.random.randint(key, (DRAWS,), 1, READ) for key in draws[:3])
    near, far, other = (
        (jax.random.uniform(key, (DRAWS,)) * context).astype(jnp.int32) for key in draws[3:]
    )
    asked, one, two = q[:, at], k[:, first], k[:, second]
    closer = scores(asked, one, encoding, near // 4) > scores(
        asked, one, encoding, 3 * context // 4 + far // 4
    )
    order = [
        scores(asked, one, encoding, back) > scores(asked, two, encoding, back)
        for back in (near, other)
    ]
    return jnp.stack([jnp.mean(closer), jnp.mean(order[0] == order[1])])


def of_run(selected: str, books: str) -> pd.DataFrame:
    run, _, method = selected.partition("@")
    subject = load_subject(Path(run))
    encoding, _ = methods.extended_encoding(subject, method or "none", CONTEXTS[-1])
    data = EvaluationData(source="jsonl", path=books)
    config = Evaluation(documents=BOOKS, windows=1, data=data)
    text = evaluate.choose(config, subject, [READ])
    rows = text.split.tokens[text.starts[:, None] + np.arange(READ)].astype(np.int32)
    rows, found = with_prefix(rows, subject.prefix), []
    for book, row in enumerate(rows):
        for number, layer in enumerate(subject.parts.model.layers(row[None], encoding)):
            q, k = layer.queries(layer.read)[0], layer.keys(layer.read)[0]
            for context in CONTEXTS:
                rng = jax.random.key(book * 1_000 + number)
                near, order = shares(q, k, layer.encoding, rng, context)
                found.append((context, number, book, float(near), float(order)))
    columns = ["context", "layer", "book", "nearer", "same order"]
    frame = pd.DataFrame(found, columns=columns)
    return frame.assign(model=Path(run).name, method=method or "none").round(4)


if __name__ == "__main__":
    books, out, *runs = sys.argv[1:]
    pd.concat([of_run(run, books) for run in runs]).to_csv(out, index=False)
