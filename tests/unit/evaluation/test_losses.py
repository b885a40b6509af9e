"""Windows that are read by pieces have the losses of whole passes."""

import jax
import numpy as np
import pytest
from sizes import DIMS

import posenc_jax
from posenc_jax.evaluation.losses import Reader


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("rope@yarn", 7),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("rope@yarn", 101), ("fox@none", 30), ("hybrid@none", 30))
        ),
    ],
)
def test_windows_by_pieces_have_the_losses_of_whole_passes(name, last, make_model, make_tokens):
    scheme, extension = name.split("@")
    encoding = posenc_jax.build(scheme, DIMS, key=jax.random.key(0))
    encoding = posenc_jax.extend(extension, encoding, 8.0)
    tokens, starts = np.asarray(make_tokens(150))[0], np.array([0, 5, 40])
    model = make_model(layers=2 if scheme == "hybrid" else 1)
    whole = Reader(model, tokens, 400)(encoding, starts, 101, last)
    pieces = Reader(model, tokens, 400, piece=24)(encoding, starts, 101, last)
    np.testing.assert_allclose(pieces[0], whole[0], rtol=1e-5, atol=1e-5)
    assert np.mean(pieces[1] == whole[1]) > 0.99
