"""Runs, methods and lengths as command lines name them."""

import pytest
from evaluated import make_run

from posenc_jax.evaluation import compare, records
from posenc_jax.runtime.errors import ConfigError


def test_a_run_and_its_methods_are_named_in_one_way(tmp_path):
    run = tmp_path / "a@1"
    run.mkdir()
    for text, found in (
        (f"{run}", ((), None)),
        (f"{run}@yarn:8@1024", (("yarn:8",), 1024)),
        (f"{run}@none,yarn:8:beta_fast=16+logn", (("none", "yarn:8:beta_fast=16+logn"), None)),
        (f"{run}@128", ((), 128)),
    ):
        assert compare.parse_selection(text) == (run, *found)
    (tmp_path / "b").mkdir()
    with pytest.raises(ConfigError, match="methods follow an @: .*/b@none,yarn:8"):
        compare.parse_selection(f"{tmp_path}/b:none,yarn:8")
    with pytest.raises(ConfigError, match="must be RUN"):
        compare.parse_selection(f"{run}@yarn@pi")


def test_a_method_may_be_written_in_other_words(tmp_path):
    run = make_run(tmp_path / "run", "rope", 0)
    scale = {
        c.facts["scale"] for c in records.read_cells(run / "eval") if c.facts["extension"] == "pi"
    }
    written = f"{run}@pi:{float(scale.pop())}"
    assert {cell.facts["extension"] for cell in compare.selected_cells(written)} == {"pi"}
    assert compare.protocols_in("same_token, nonoverlap") == ["same_token", "nonoverlap"]
    with pytest.raises(ConfigError, match="did you mean 'same_token'"):
        compare.protocols_in("sametoken")


def test_comparing_names_every_length_and_part(tmp_path):
    """A part is never shown as if it were the whole."""
    run = make_run(tmp_path / "run", "rope", 0)
    own = [
        cell for cell in records.read_cells(run / "eval") if cell.facts["protocol"] == "same_token"
    ]
    parts = [
        cell._replace(
            facts=cell.facts | {"protocol": "order", "part": part},
            nats=cell.nats + (number if cell.facts["scale"] else 0),
        )
        for cell in own
        for number, part in enumerate(("whole", "shuffled-4", "dropped-4"))
        if cell.facts["length"] > 16
    ]
    records.write(run / "eval", parts)
    rows = compare.differences(f"{run}@pi", str(run), ["order"])
    names = [f"order {n} {part}" for n in (32, 64) for part in ("whole", "shuffled-4", "dropped-4")]
    assert [row[0] for row in rows] == names
    assert len({row[1] for row in rows if " 64 " in row[0]}) == 3
    rows = compare.differences(f"{run}@none@64", f"{run}@none@32", ["order"])
    assert [row[0] for row in rows][0] == "order 64 whole against 32" and len(rows) == 3
