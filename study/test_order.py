"""The sweep of order at five budgets: its rates, and that every budget goes on from its trunk."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import ROOT

from posenc_jax.runtime.files import write_csv
from posenc_jax.sweeping.jobs import jobs_of, refuse_mistakes
from posenc_jax.sweeping.rates import CHOICES_COLUMNS
from study.order import budget, rates
from study.order.flips import flips


@pytest.fixture
def choices(tmp_path, monkeypatch):
    """Losses of two rates at both budgets: one is best at 600 steps and fails at 4,800."""
    losses = {(0.001, 600): 0.2, (0.003, 600): 0.1, (0.001, 4_800): 0.001, (0.003, 4_800): 1.5}
    rows = [
        {"scheme": f"ordered-{name}-steps={steps}", "run": "", "times": 1.0, "learning_rate": rate}
        | {"encoding_rate": 1.0, "choose_loss": loss, "choose_bpb": loss}
        for name in rates.ENCODINGS
        for (rate, steps), loss in losses.items()
    ]
    write_csv(tmp_path / "choices.csv", CHOICES_COLUMNS, rows)
    monkeypatch.setattr(budget, "CHOICES", tmp_path)
    monkeypatch.chdir(ROOT)


def test_every_budget_goes_on_from_the_trunk_of_its_encoding_and_seed(choices, tmp_path):
    made = budget.get_config()
    jobs = jobs_of(made, Path(budget.WORKDIR))
    refuse_mistakes(jobs)
    assert len(jobs) == len({job.name for job in jobs}) == 5 * sum(budget.SEEDS.values())
    done = set()
    for job in jobs:
        config = job.config
        if config.anneal:
            assert config.anneal in done  # which stands before it
        done.add(str(job.folder))
        trunk = dict(job.fields) | {"steps": budget.TRUNK}
        assert config.schedule == "linear" and config.learning_rate == 0.001
        # Its last fifth begins at a checkpoint of the trunk, which keeps all of them.
        assert (config.steps - config.steps // 5) % config.save_every == 0
        assert config.keep * config.save_every >= trunk["steps"]
    steps = Counter(job.config.steps for job in jobs)
    assert set(steps) == {*budget.BUDGETS, budget.TRUNK} and len(set(steps.values())) == 1


def test_a_pair_flips_if_it_changes_sign_clearly_at_both_budgets():
    rng = np.random.default_rng(0)
    means = {"a": {600: 0.6, 9_600: 0.9}, "b": {600: 0.8, 9_600: 0.8}, "c": {600: 0.3, 9_600: 0.4}}
    means["d"] = {600: 0.8, 9_600: 0.81}  # beside b, and not clearly ahead of it
    rows = [
        {"method": name, "steps": steps, "seed": seed, "order": mean + rng.normal(0, 0.02)}
        for name, own in means.items()
        for steps, mean in own.items()
        for seed in range(5)
    ]
    (first, second) = flips(pd.DataFrame(rows), [600, 9_600])
    assert (first.one, first.other, first.ahead, first.behind) == ("a", "b", 9_600, 600)
    assert first.gained == pytest.approx(0.1, abs=0.03)
    assert first.lost == pytest.approx(-0.2, abs=0.03)
    assert (second.one, second.other) == ("a", "d")
    one_seed = pd.DataFrame([row for row in rows if row["seed"] == 0])
    assert flips(one_seed, [600, 9_600]) == []
