"""Texts that are prepared into a cache of their own."""

import pytest
from configured import origin_of
from prepared_texts import letters

from configs import base
from posenc_jax.data.prepare import prepare as prepare_source


@pytest.fixture
def prepare(tmp_path):
    """Prepare the corpus of fields of `data`."""

    def make(seed=0, *, quiet=True, **fields):
        data = base.get_config().data
        with data.ignore_type():
            data.update(cache=str(tmp_path / "cache"), **fields)
        return prepare_source(origin_of(data), seed, quiet=quiet)

    return make


@pytest.fixture
def texts(tmp_path):
    """Thirty files of 400 letters, as fields of `data`."""
    (tmp_path / "texts").mkdir()
    for i in range(30):
        (tmp_path / "texts" / f"{i:02d}.txt").write_text(letters(i))
    return {"source": "text", "path": f"{tmp_path}/texts/*.txt", "valid_fraction": 0.3}
