"""Hide a key from a query in every layer, and ask for the last of two settings again.

If a model orders by position, the question alone compares the two settings, and nothing is lost
when the older one is hidden from the last. If it orders by content, the last setting has to see the
older one to be marked as the later of the two.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention.regions import NONE
from posenc_jax.data import tasks
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation.losses import rows_per_call
from posenc_jax.evaluation.protocols import last_of_two
from posenc_jax.evaluation.protocols._questions import Questions
from posenc_jax.evaluation.windows import Text
from posenc_jax.layers import Wrapper, overrides
from posenc_jax.runtime.errors import ConfigError


class Hidden(Wrapper):
    """An encoding with keys that a query does not see, in addition to those it would not see."""

    key: jax.Array  # [B, T], index of the first key that each query does not see; -1: none
    end: jax.Array  # [B, T], index after the last
    unseen: jax.Array  # [B, T], keys that no other token sees

    def read(self, x, before=None, document=None):
        index = jnp.broadcast_to(jnp.arange(x.shape[1]), self.key.shape)
        own = {"index": index, "key": self.key, "end": self.end, "unseen": self.unseen}
        return (self.inner.read(x, before, document) or {}) | own

    def bias(self, q, k):
        bias = self.inner.bias(q, k)
        q_index, k_index = q.features["index"][:, :, None], k.features["index"][:, None, :]
        mask = (q.features["key"][:, :, None] <= k_index) & (
            k_index < q.features["end"][:, :, None]
        )
        mask |= k.features["unseen"][:, None, :] & (q_index != k_index)
        mask = jnp.broadcast_to(mask[:, None], (len(mask), self.dims.heads, *mask.shape[1:]))
        return jnp.where(mask, NONE, 0.0 if bias is None else bias)


class Pairs(NamedTuple):
    """Rows, and the names in them that were set twice and are asked for in the second half."""

    rows: np.ndarray  # [N, T + 1], tokens
    row: np.ndarray  # [pairs]
    question: np.ndarray  # [pairs], index in its row, as below
    last: np.ndarray
    older: np.ndarray
    answers: np.ndarray  # [pairs, 2], of the last setting and of the older one
    fillers: np.ndarray  # [N, T + 1], bool
    chance: float


def pairs_of(text: Text, length: int, trained: int) -> Pairs:
    """The pairs of `last_of_two` at a length: within L, or with the last setting beyond it."""
    protocol = last_of_two.protocol
    reading = protocol.plan(text, length, None)
    settings = Questions(reading).settings
    assert settings is not None and text.split.chance is not None
    chosen = last_of_two.pairs(settings, length, trained)
    if not chosen.any():
        raise ConfigError(
            f"the text asks for no name that was set twice in windows of {length} tokens: give a "
            "run on variant=ordered, whose names have older settings"
        )
    row, question = (index[chosen] for index in np.nonzero(reading.scored()))
    back = settings.back[chosen]
    rows = np.array(text.split.tokens[reading.starts[:, None] + np.arange(length + 1)])
    fillers = np.isin(rows, tasks.FILLERS)
    last, older = question - back[:, 0], question - back[:, 1]
    answers = settings.answer[chosen, :2]
    return Pairs(rows, row, question, last, older, answers, fillers, text.split.chance)


def hidden_keys(pairs: Pairs) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For everything that is hidden, `key` and `unseen` of `Hidden`. The control hides, of all
    fillers before the last setting, the one nearest to the older setting."""
    shape = len(pairs.rows), pairs.rows.shape[1] - 1
    none, seen = np.full(shape, -1, np.int32), np.zeros(shape, bool)
    key, control = none.copy(), none.copy()
    key[pairs.row, pairs.last] = pairs.older
    for row, last, older in zip(pairs.row, pairs.last, pairs.older, strict=True):
        places = np.flatnonzero(pairs.fillers[row, :last])
        if len(places):
            control[row, last] = places[np.argmin(np.abs(places - older))]
    return {
        "nothing": (none, seen),
        "older setting from the last": (key, seen),
        "filler as far back from the last": (control, seen),
        "every filler": (none, pairs.fillers[:, :-1]),
    }


def check(encoding: Encoding) -> None:
    """Refuse an encoding whose scores a bias cannot hide a key in."""
    layers = [encoding.layer(index) for index in range(encoding.period)]
    if any(overrides(layer, hook) for layer in layers for hook in ("attend", "logits")):
        raise ConfigError(
            f"keys are hidden by a bias, and encoding {encoding.name!r} does not add its bias to "
            "the scores"
        )


def counts(
    model: Any, encoding: Encoding, pairs: Pairs, tokens_per_call: int = 16_384
) -> Iterator[dict[str, Any]]:
    """Counts of answers with the last value, the older one and others for everything hidden."""
    size = rows_per_call(len(pairs.rows), pairs.rows.shape[1] - 1, 1, tokens_per_call)
    for name, (key, unseen) in hidden_keys(pairs).items():
        given = _answers(model, encoding, key, unseen, pairs, size)
        last, older = ((given == pairs.answers[:, index]).sum() for index in (0, 1))
        found, order = last_of_two.estimates(len(given), last, older, pairs.chance)
        counts = {"pairs": len(given), "last": int(last), "older": int(older)}
        yield {"hidden": name, **counts, "found": found, "order": order}


def _answers(
    model: Any, encoding: Encoding, key: np.ndarray, unseen: np.ndarray, pairs: Pairs, size: int
) -> np.ndarray:  # [pairs]
    count, chosen = len(pairs.rows), np.zeros(key.shape, np.int32)
    for first in range(0, count, size):
        batch = np.arange(first, first + size) % count  # one shape for all calls
        hidden = Hidden(
            dims=encoding.dims,
            inner=encoding,
            key=jnp.asarray(key[batch]),
            end=jnp.asarray(key[batch] + 1),
            unseen=jnp.asarray(unseen[batch]),
        )
        answered = _answered(model, hidden, pairs.rows[batch])
        end = min(first + size, count)
        chosen[first:end] = answered[: end - first]
    return chosen[pairs.row, pairs.question]


@jax.jit
def _answered(model, encoding, rows):  # [B, T + 1] -> [B, T]
    tokens = rows.astype(jnp.int32)
    return model.losses(tokens[:, :-1], tokens[:, 1:], encoding)[1]
