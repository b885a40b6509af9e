"""Fairness of a comparison: rates tried, losses that still fall."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from evaluated import make_run

import posenc_jax
from posenc_jax.report import learning, sections, tables
from posenc_jax.report.runs import read_runs
from posenc_jax.sweeping.rates import CHOICES_COLUMNS, CHOICES_FILE

STEPS = 80


def falling(folder, slopes, lower=0.0):
    """Rewrites what a run logged: a held-out loss that falls by so much over its last quarter."""
    rng = np.random.default_rng(0)
    lines = []
    for step in range(1, STEPS + 1):
        loss = 3 - lower - slopes * step / (STEPS / 4) + 0.001 * rng.normal()
        lines.append({"step": step, "valid_loss": loss, "tokens_per_second": 1.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def three(tmp_path):
    """The best, one that falls three times as fast, and one that falls faster by chance alone."""
    for name, better, falls in (("rope", 0.5, 0.1), ("nope", 0.0, 0.3), ("t5", 0.2, 0.19)):
        folder = make_run(tmp_path / f"{name}-s0", name, 0, better=better, steps=STEPS)
        falling(folder, falls)
    return tmp_path


def test_a_loss_falling_twice_as_fast_as_the_best_is_unfinished(three):
    falling(three / "rope-s0", 0.5)
    falling(three / "nope-s0", 0.9)
    (best, *others) = learning.groups_by_loss(read_runs([three]))
    assert best.group == "nope" and best.of_best is None and all(one.done for one in others)
    falling(three / "rope-s0", 0.5, lower=9)
    falling(three / "nope-s0", 1.2)
    found = {one.group: one for one in learning.groups_by_loss(read_runs([three]))}
    assert [name for name, one in found.items() if not one.done] == ["nope"]
    assert found["nope"].fall == pytest.approx(1.2, abs=0.01)
    assert found["nope"].of_best == {0: pytest.approx(0.5, abs=0.01)}
    data = read_runs([three])
    assert tables.summary(data).splitlines()[-1].startswith("not done: nope: the held-out loss")
    assert "not done" in str(sections.learning(data))


def test_a_fall_that_seeds_may_turn_round_is_no_verdict(tmp_path):
    for seed, falls in enumerate((0.9, 0.1, 0.1)):
        for name, better, own in (("rope", 0.5, 0.1), ("nope", 0.0, falls), ("t5", 0.2, 0.4)):
            folder = make_run(tmp_path / f"{name}-s{seed}", name, seed, better, steps=STEPS)
            falling(folder, own + 0.002 * seed, lower=5 * better)
    found = {one.group: one for one in learning.groups_by_loss(read_runs([tmp_path]))}
    assert found["nope"].fall > 0.3 and found["nope"].done and not found["t5"].done
    low, high = found["t5"].interval
    assert 0.39 < low < found["t5"].fall < high < 0.41


def test_a_fall_over_more_than_a_quarter_is_scaled(three):
    run = read_runs([three]).runs[0]

    def fall(*losses, steps=600):
        config = replace(run.config, steps=steps)
        return learning.fall_of(replace(run, config=config, learned={"valid_loss": losses}))

    early, late, last = (200, 3.0), (400, 2.5), (600, 2.1)
    assert fall(early, late, last) == pytest.approx(0.4 * 150 / 200)
    assert fall(early, late, (450, 2.4), last) == pytest.approx(0.3)
    assert fall(early, late, last, steps=700) is None
    assert fall((500, 2.4), last) is None


def test_groups_trained_on_another_text_or_for_longer_are_not_the_best_of_others(three):
    folder = make_run(three / "fire-s0", "fire", 0, better=2.0, steps=STEPS, train_length=64)
    falling(folder, 0.001)
    found = learning.groups_by_loss(read_runs([three]))
    assert {one.group for one in found if one.of_best is None} == {"nope", "fire"}


def test_without_a_late_held_out_loss_there_is_no_verdict(tmp_path):
    make_run(tmp_path / "rope-s0", "rope", 0)
    data = read_runs([tmp_path])
    assert learning.groups_by_loss(data) == []
    assert "(valid_every)" in str(sections.learning(data))


def test_runs_outside_the_means_are_outside_the_losses(three):
    """The same seed again, and a run in training."""
    falling(make_run(three / "zz-rope-s0", "rope", 0, better=0.5, steps=STEPS), 5.0)
    falling(make_run(three / "zz-rope-s1", "rope", 1, evaluated=False, steps=STEPS), 5.0)
    data = read_runs([three])
    found = {one.group: one for one in learning.groups_by_loss(data)}
    assert found["rope"].fall == pytest.approx(0.1, abs=0.01)


@pytest.fixture
def tuned(tmp_path):
    """A sweep of one scheme that tried three rates, two of them only to choose."""
    rows = []
    for times, bits in ((1 / 3, 2.5), (1.0, 2.25), (3.0, float("inf"))):
        rate = float(f"{3e-3 * times:.6g}")
        name, chosen = f"rope-s0-learning_rate={rate:g}", "yes" if times == 1 else ""
        make_run(tmp_path / name, "rope", 0, evaluated=bool(chosen), learning_rate=rate)
        row = {"scheme": "rope", "run": name, "times": times}
        row |= {"learning_rate": rate, "encoding_rate": 1.0, "chosen": chosen, "shipped": chosen}
        finite = {"choose_loss": bits, "choose_bpb": bits} if bits < 9 else {"choose_loss": "inf"}
        rows.append(row | finite)
    make_run(tmp_path / "rope-s1-learning_rate=0.003", "rope", 1, learning_rate=3e-3)
    pd.DataFrame(rows, columns=CHOICES_COLUMNS).to_csv(tmp_path / CHOICES_FILE, index=False)
    return tmp_path


def test_trial_runs_appear_in_the_table_of_rates_only(tuned):
    data = read_runs([tuned])
    assert {run.name for run in data.runs} == {f"rope-s{s}-learning_rate=0.003" for s in (0, 1)}
    assert data.notes == [] and {run.group for run in data.runs} == {"rope"}
    html = str(sections.rates(data))
    for cell in ("2.250", "0.001: 2.500; 0.003: 2.250; 0.009: not finite"):
        assert cell in html
    assert "(0.333333, 1, 3;" in html and "trained arrays" not in html


def test_shipped_and_tuned_rates_of_a_scheme_are_both_listed(tuned, tmp_path):
    shipped = tmp_path / "zoo"
    make_run(shipped / "rope-s0", "rope", 0, learning_rate=1e-3)
    for config in tuned.glob("*/config.json"):
        fields = json.loads(config.read_text())
        config.write_text(json.dumps(fields | {"data": fields["data"] | {"choose_fraction": 0.1}}))
    data = read_runs([tuned, shipped])
    assert {run.group for run in data.runs} == {"rope", "rope-learning_rate=0.003"}


def test_curves_of_a_tuned_sweep_are_of_its_final_runs(tuned, capsys):
    table = posenc_jax.curves(tuned).pivot(
        index=["run", "protocol", "part", "method"], columns="length", values="bpb"
    )
    assert set(table.index.get_level_values("run")) == {
        f"rope-s{seed}-learning_rate=0.003" for seed in (0, 1)
    }
    assert "warning" not in capsys.readouterr().err


def test_a_damaged_table_of_rates_is_a_note(tuned):
    (tuned / CHOICES_FILE).write_text("scheme,run\nrope,x\n")
    data = read_runs([tuned])
    assert any("choices.csv cannot be read" in note for note in data.notes)
    assert sections.rates(data) is None
