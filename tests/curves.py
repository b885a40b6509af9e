"""Two evaluations, compared."""

import csv

import numpy as np

from posenc_jax.evaluation import records

OWN = ("run", "evaluation")  # columns in which equal evaluations may differ


def rows_of(workdir):
    with (workdir / "eval" / "curves.csv").open() as stream:
        return list(csv.DictReader(stream))


def assert_equal_evaluations(one, other, evaluation="", tolerance=1e-6):
    """The sums and the rows of two workdirs are equal; ends of intervals over a few documents are
    many times as sensitive as means, a perplexity as its logarithm is large, and a difference has
    the errors of two."""
    cells, others = (
        records.of_evaluation(records.read_cells(place / "eval"), name)
        for place, name in ((one, ""), (other, evaluation))
    )
    assert len(cells) == len(others) > 0
    for cell, equal in zip(cells, others, strict=True):
        for sums, expected in zip(cell[1:], equal[1:], strict=True):
            # Sums of differences of losses (riffle) have the errors of the losses.
            np.testing.assert_allclose(expected, sums, rtol=tolerance, atol=10 * tolerance)
        for name in cell.facts.keys() - set(OWN):
            assert cell.facts[name] == equal.facts[name]
    every, equals = records.rows(cells), records.rows(others)
    for row, equal in zip(every, equals, strict=True):
        for name in row.keys() - set(OWN):
            if row[name] != equal[name]:
                of_two = 2 if name.startswith("over_") else 1
                loose = 20 if name.endswith(("low", "high")) else 5 if name == "ppl" else of_two
                options = dict(rtol=loose * tolerance, atol=loose * tolerance, err_msg=name)
                np.testing.assert_allclose(equal[name], row[name], **options)
