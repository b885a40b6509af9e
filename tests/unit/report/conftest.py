"""A sweep that tests only read, gathered once."""

import pytest
from evaluated import make_run

from posenc_jax.report.runs import read_runs


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """Three encodings with three seeds, one of them without extensions; one run not evaluated."""
    folder = tmp_path_factory.mktemp("sweep")
    for seed in range(3):
        make_run(folder / f"rope-s{seed}", "rope", seed, better=0.5, scales=(2.0, 4.0))
        make_run(folder / f"alibi-s{seed}", "alibi", seed, better=0.5, scales=())
        make_run(folder / f"nope-s{seed}", "nope", seed)
    make_run(folder / "t5-s0", "t5", 0, evaluated=False)
    return read_runs([folder])
