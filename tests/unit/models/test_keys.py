"""A block that is given the keys of earlier tokens computes what the full pass computes."""

import itertools

import jax
import numpy as np
import pytest
from sizes import L

from posenc_jax.positions import tokens_of_row

pytestmark = pytest.mark.sampled

CUTS = (0, 13, 14, 2 * L)  # parts of several tokens and of one


@pytest.mark.parametrize("packed", [False, True], ids=["one document", "two documents"])
def test_a_row_in_parts_equals_the_full_row(encoding, packed, drawn, make_model, make_tokens):
    model, encoding = make_model(), drawn(encoding)
    length = min(encoding.reach or CUTS[-1], CUTS[-1])
    tokens = make_tokens(length, batch=2)
    documents = np.array([[1] * 9 + [2] * (length - 9), [1] * 12 + [2] * (length - 12)])
    row = tokens_of_row(encoding, 2, length, documents=documents if packed else None)
    layer = encoding.layer(0)
    x = layer.embed(model.read(tokens), row.position)
    block = jax.tree.map(lambda leaf: leaf[0], model.blocks)
    whole, _ = block(x, layer, row, phase=layer.phase(row.position))

    parts, before = [], None
    for first, last in itertools.pairwise((*CUTS[:-1], length)):
        part = row.replace(
            position=row.position[..., first:last],
            document=None if row.document is None else row.document[:, first:last],
        )
        phase = layer.phase(part.position) if before is None else None
        out, before = block(x[:, first:last], layer, part, before=before, phase=phase)
        parts.append(out)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=2e-5, atol=2e-5)
    assert before.k.shape[2] == length
