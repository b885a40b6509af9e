"""How command lines name a run, methods and a length."""

import pytest

from posenc_jax.errors import ConfigError
from posenc_jax.evaluation import selection


def test_a_run_and_its_methods_are_named_in_one_way(tmp_path):
    run = tmp_path / "a@1"
    run.mkdir()
    for text, found in (
        (f"{run}", ((), None)),
        (f"{run}@yarn:8@1024", (("yarn:8",), 1024)),
        (f"{run}@none,yarn:8:beta_fast=16+logn", (("none", "yarn:8:beta_fast=16+logn"), None)),
        (f"{run}@128", ((), 128)),
    ):
        assert selection.parse(text) == (run, *found)
    (tmp_path / "b").mkdir()
    with pytest.raises(ConfigError, match="methods follow an @: .*/b@none,yarn:8"):
        selection.parse(f"{tmp_path}/b:none,yarn:8")
    with pytest.raises(ConfigError, match="must be RUN"):
        selection.parse(f"{run}@yarn@pi")
