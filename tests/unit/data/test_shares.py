"""Every accepted share of a mixture yields rows; smaller ones are refused."""

import numpy as np
import pytest
from configured import source_of

from configs import base
from posenc_jax.config import check
from posenc_jax.data import batches


def problems_of(mixture):
    config = base.get_config()
    config.data.mixture = mixture
    return "\n".join(check.without_building(config).problems)


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        (
            "stdlib:1e308,variables:1e308",
            "the share of stdlib must be a number from 1e-30 to 1e+30",
        ),
        (
            "stdlib:1e400,variables:1",
            "the share of stdlib must be a finite number above 0; got inf",
        ),
        (
            "stdlib:1_0,variables:1",
            "the share of stdlib must be a number, such as 0.003 or 3e-3; got '1_0'",
        ),
    ],
)
def test_shares_too_small_to_yield_rows_are_refused(mixture, message):
    assert message in problems_of(mixture)


@pytest.mark.parametrize(
    "mixture",
    [
        "stdlib:1999,variables:1",
        "stdlib:0.49975,variables:0.49975,needle:0.0005",
        "stdlib:1,variables:0.0006,needle:0.0006,passkey:0.0006,copy:0.0006,induction:0.0006",
    ],
)
def test_every_share_that_is_taken_trains_one_row_in_a_thousand(mixture):
    assert "share" not in problems_of(mixture)
    shares = source_of(mixture=mixture).shares.values()
    rows = batches.MixedBatches([(None, share) for share in shares], batch_size=1, seed=0).counts
    assert rows.sum() == 1000 and rows.min() >= 1
    np.testing.assert_allclose(rows, 1000 * np.array(list(shares)) / sum(shares), atol=2.5)
