"""Knock-outs on a pretrained model: python -m study.order.hidden RUN BOOKS METHOD

Hides the older of two settings from the last one, or from all tokens but the question, in rows of
`revised`, and writes what was preferred to RUN/hidden.csv.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from posenc_jax.config import Evaluation
from posenc_jax.data.batches import with_prefix
from posenc_jax.data.sources import EvaluationData
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import evaluate, methods
from posenc_jax.evaluation.knockout import Hidden
from posenc_jax.evaluation.protocols import revised
from posenc_jax.runs.subject import load_subject

LENGTH, BOOKS, AT_ONCE = 512, 12, 16
BEFORE, AFTER = 9, 2  # tokens from the value of a setting to the ends of what is hidden
SPAN = BEFORE + AFTER


def hidden_keys(older: int, last: int) -> dict[str, tuple[slice, int]]:
    """Queries, and the first of the keys that they do not see, by what is hidden."""
    place = revised.places(LENGTH)
    begin, of_last = place[older] - BEFORE, place[last] - BEFORE
    queries = slice(of_last, of_last + SPAN)
    return {
        "nothing": (slice(0), 0),
        "older setting from the last": (queries, begin),
        "text as far back from the last": (queries, begin - SPAN),
        "older setting from all but the question": (slice(begin + SPAN, LENGTH - BEFORE), begin),
    }


@jax.jit
def nats_of(model, encoding, tokens):  # [B, T + 1] -> [B]
    return model.losses(tokens[:, :-1], tokens[:, -1:], encoding)[0][:, 0]


def main(run: Path, books: str, method: str) -> None:
    subject = load_subject(run)
    encoding, _ = methods.extended_encoding(subject, method, LENGTH)
    data = EvaluationData(source="jsonl", path=books)
    config = Evaluation(protocols="revised", documents=BOOKS, windows=1, data=data)
    text = evaluate.choose(config, subject, [LENGTH])
    text = revised.protocol.text(text, subject, [LENGTH], config)
    inner = revised.revised(text, LENGTH)
    shape = len(text.starts), 2, len(revised.PAIRS), len(revised.TARGETS), LENGTH + 1
    rows = with_prefix(inner.split.tokens.reshape(-1, LENGTH + 1).astype(np.int32), subject.prefix)
    rows, found = rows.reshape(shape)[..., :2, :], []  # of the last and of the older value
    for number, pair in enumerate(revised.PAIRS):
        own = rows[:, :, number].reshape(-1, LENGTH + 1)
        for name, (queries, begin) in hidden_keys(*pair).items():
            key = np.full((len(own), LENGTH), -1, np.int32)
            key[:, queries] = begin
            end = np.where(key < 0, 0, key + SPAN)
            nats = [
                nats_of(subject.parts.model, _hidden(encoding, key[part], end[part]), own[part])
                for first in range(0, len(own), AT_ONCE)
                for part in [slice(first, first + AT_ONCE)]
            ]
            margin = np.diff(np.concatenate(nats).reshape(len(rows), 2, 2))[..., 0]  # [W, 2]
            right = (margin > 0).sum(axis=1)
            own_rows = {"document": range(len(rows)), "answers": 2, "right": right}
            own_rows |= {"margin": margin.sum(axis=1).round(4)}
            found.append(pd.DataFrame({"hidden": name, "pair": number} | own_rows))
            print(f"{run.name}, pair {number}, {name}: {right.mean() / 2:.2f}", flush=True)
    pd.concat(found).to_csv(run / "hidden.csv", index=False)


def _hidden(encoding: Encoding, key: np.ndarray, end: np.ndarray) -> Hidden:
    own = {"key": jnp.asarray(key), "end": jnp.asarray(end)}
    return Hidden(dims=encoding.dims, inner=encoding, unseen=jnp.zeros(key.shape, bool), **own)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
