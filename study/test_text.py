"""The sweeps on text: their rates, their targets, and what is kept of their runs."""

import tarfile
from pathlib import Path

import pytest
from running import ROOT

from posenc_jax.evaluation import records
from posenc_jax.sweeping.jobs import jobs_of
from posenc_jax.sweeping.rates import Plan, checked_rates
from study.cells import STUDY
from study.text import factors, steps
from study.text import sweep as fair


@pytest.mark.parametrize("sweep", [steps, factors], ids=lambda one: one.__name__)
def test_sweeps_beside_the_fair_zoo_take_its_rates_and_its_targets(sweep, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    made, of_fair = sweep.get_config(), fair.get_config()
    assert made["evaluation"] == of_fair["evaluation"] and "choose" not in made
    assert of_fair["fields"].items() <= made["fields"].items()
    for job in jobs_of(made, tmp_path):
        assert "learning_rate" in dict(job.fields) and job.mistakes() == []


def test_the_fair_zoo_tunes_all_of_its_encodings_alike(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    made = fair.get_config()
    there = [job for job in made["grid"] if (ROOT / job["recipe"]).exists()]
    jobs = jobs_of(made | {"grid": there}, tmp_path)
    plan = Plan(jobs, tmp_path, checked_rates(made, jobs))
    assert len(made["grid"]) == 5 * 10 and {job["seed"] for job in there} == set(range(5))
    for scheme in plan.schemes:
        points, _ = scheme.stages()
        assert {scheme.times(point) for point in points} == {0.333, 1.0, 3.0}
        assert len(scheme.seeds) == 5 and scheme.seeds[0].mistakes() == []


def test_the_archive_of_the_fair_zoo_is_read(tmp_path):
    with tarfile.open(STUDY / "text" / "rows" / "sweep" / "runs.tar.xz") as archive:
        name = next(n for n in archive.getnames() if n.endswith("eval/sums.parquet"))
        archive.extract(name, tmp_path, filter="data")
    cells = records.read_cells(tmp_path / Path(name).parent)
    assert len(records.rows(cells)) == len(cells) > 10
