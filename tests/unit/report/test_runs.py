"""The data of a report, read from the folders of runs."""

import json
import shutil

import pandas as pd
import pytest
from evaluated import LENGTHS, make_run

from posenc_jax.evaluation import records
from posenc_jax.report.ranking import ranked
from posenc_jax.report.runs import read_runs
from posenc_jax.runtime.errors import DataError
from posenc_jax.sweeping.rates import CHOICES_COLUMNS, CHOICES_FILE


def evaluate_at(step, folder):
    """Make a run's evaluation one of an earlier step."""
    cells = records.read_cells(folder / "eval")
    shutil.rmtree(folder / "eval")
    early = [cell._replace(facts=cell.facts | {"step": step}) for cell in cells]
    records.write(folder / "eval", early)


def test_only_runs_of_one_experiment_at_one_step_are_seeds_of_it(sweep, tmp_path):
    other = make_run(sweep / "rope-rate-s1", "rope", 1, learning_rate=0.1)
    how = make_run(sweep / "nope-s7", "nope", 7, data={"source": "stdlib", "cache": "elsewhere"})
    copy = shutil.copytree(sweep / "alibi-s0", tmp_path / "alibi-again")
    evaluate_at(5, sweep / "nope-s0")
    data = read_runs([sweep, copy])
    groups = {run.name: run.group for run in data.runs}
    assert groups[other.name] == "rope-rate" and groups["rope-s1"] == "rope"
    assert groups[how.name] == groups["nope-s0"] == "nope"
    seeds = {
        row.group: len(row.seeds) for row in ranked(data.runs, plain=True)[0]["same_token"][32]
    }
    assert seeds == {"rope": 3, "rope-rate": 1, "alibi": 3, "nope": 3}
    notes = "; ".join(data.notes)
    assert "alibi-again is not in the means: the same experiment and seed as alibi-s0" in notes
    assert "nope-s0: evaluated at step 5 of 10" in notes
    assert "nope-s0 is not in the means: the rest of its group was evaluated at step 10" in notes


def test_duplicate_seed_keeps_one_run(tmp_path):
    """The older step is left out first, and has no vote on the targets."""
    older = make_run(tmp_path / "rope-s0", "rope", 0, targets="older")
    make_run(tmp_path / "rope-s1", "rope", 1)
    evaluate_at(5, older)
    (row,) = ranked(read_runs([tmp_path]).runs, plain=True)[0]["same_token"][32]
    assert len(row.seeds) == 1


def test_runs_of_one_label_are_called_by_it(sweep):
    for seed in range(2):
        name = f"rope-learning_rate=0.1-s{seed}"
        make_run(sweep / name, "rope", seed, learning_rate=0.1, label="rope, fast")
    for seed, label in enumerate(("one", "another")):
        make_run(sweep / f"rope-s{seed}-steps=20", "rope", seed, steps=20, label=label)
    groups = {run.name: run.group for run in read_runs([sweep]).runs}
    assert {groups[f"rope-learning_rate=0.1-s{seed}"] for seed in range(2)} == {"rope, fast"}
    assert groups["rope-s0-steps=20"] == "rope-steps=20" and groups["alibi-s0"] == "alibi"


def test_names_that_clash_say_what_differs(tmp_path):
    for rate in (0.1, 0.2):
        make_run(tmp_path / str(rate) / "rope-s0", "rope", 0, learning_rate=rate)
    data = read_runs([tmp_path / "0.1", tmp_path / "0.2"])
    assert [run.group for run in data.runs] == [
        "rope (learning_rate=0.1)",
        "rope (learning_rate=0.2)",
    ]
    for name in "ab":  # of places as much as tells them apart
        place = f"{tmp_path}/{name}/texts"
        data = {"source": "text", "path": f"{place}/*.txt", "tokenizer": "bytes"}
        make_run(tmp_path / "texts" / f"of-{name}" / "rope-s0", "rope", 0, data=data)
    data = read_runs(sorted((tmp_path / "texts").iterdir()))
    assert [run.group for run in data.runs] == [f"rope (path={name}/texts/*.txt)" for name in "ab"]
    for rate in (0.1, 0.2, 0.3):
        for steps in (10, 20):
            folder = tmp_path / f"{rate} {steps}"
            make_run(folder / "rope-s0", "rope", 0, learning_rate=rate, steps=steps)
    data = read_runs(sorted(tmp_path.glob("0.? ?0")))
    assert len({run.group for run in data.runs}) == 6
    for width in range(6):
        model = {"layers": 2, "width": 8 + 4 * width}
        make_run(tmp_path / "widths" / f"rope-s0-width={width}", "rope", 0, model=model)
    data = read_runs([tmp_path / "widths"])
    assert {run.group for run in data.runs} == {f"rope-width={n}" for n in range(6)}


def test_equal_tokenizers_at_two_paths_are_one(tmp_path):
    """The runs are read where the named file does not exist."""
    data = {"source": "stdlib", "tokenizer": "gone.json"}
    for seed, held in enumerate(("a", "a", "b")):
        folder = make_run(tmp_path / f"rope-s{seed}", "rope", seed, data=data)
        (folder / "tokenizer.json").write_text(held)
    groups = [run.group for run in read_runs([tmp_path]).runs]
    assert groups[0] == groups[1] != groups[2]
    assert "tokenizer=" in groups[0]
    shutil.rmtree(folder)
    assert {run.group for run in read_runs([tmp_path]).runs} == {"rope"}


def test_a_run_with_a_short_status_is_reported(tmp_path):
    """status.json lacks command, data and speed."""
    folder = make_run(tmp_path / "rope-s0", "rope", 0)
    (folder / "status.json").write_text(json.dumps({"state": "done", "step": 10, "digest": "d"}))
    data = read_runs([folder])
    (run,) = data.runs
    assert (run.command, run.data) == ("", "")
    (folder / "status.json").unlink()
    (run,) = read_runs([folder]).runs
    assert (run.state, run.step) == ("unknown", 10)


def test_facts_and_curves_of_a_run(swept):
    run = next(run for run in swept.runs if run.name == "rope-s0")
    assert run.command == "train.py --config=x.py"
    facts = "3 documents, 1,200 tokens to train on, 1.0 bytes each"
    assert run.data == f"abc: {facts}, 25.0% of them in documents longer than L"
    of_run = swept.points[swept.points.id == run.id]
    points = of_run[(of_run.protocol == "sliding") & (of_run.method == "pi:2")]
    assert list(points.length) == list(LENGTHS)
    rows = records.rows(records.read_cells(run.folder / "eval"))
    row = next(r for r in rows if (r["protocol"], r["scale"], r["length"]) == ("sliding", 2.0, 64))
    last = points.iloc[-1]
    assert last.bpb == row["bpb"]
    assert (last.gain_bpb, last.gain_bpb_low) == (row["gain_bpb"], row["gain_low"])


def test_a_factor_beside_a_tuned_run_is_named_and_not_what_both_share(tmp_path):
    bos = {"model": {"layers": 2, "width": 8, "bos": True}}
    for folder, name, own in (
        ("fair", "nope-s0-learning_rate=0.009", {}),
        ("factors", "nope-s0-learning_rate=0.009-bos=True", bos),
        ("long", "nope-s0-learning_rate=0.009", {"steps": 40}),
    ):
        make_run(tmp_path / folder / name, "nope", 0, learning_rate=0.009, **own)
    row = {"scheme": "nope", "run": "nope-s0-learning_rate=0.009", "chosen": "yes"}
    choices = pd.DataFrame([row], columns=CHOICES_COLUMNS)
    choices.to_csv(tmp_path / "fair" / CHOICES_FILE, index=False)

    def groups(*folders):
        data = read_runs([tmp_path / folder for folder in folders])
        return [run.group for run in data.runs]

    assert groups("fair", "factors") == ["nope", "nope-bos=True"]
    assert groups("fair", "long") == ["nope (steps=10)", "nope (steps=40)"]


def test_damaged_and_missing_runs_are_named(sweep, tmp_path):
    (sweep / "rope-s0" / "eval" / "sums.parquet").write_bytes(b"no")
    (sweep / "tokenizer").mkdir()
    (sweep / "tokenizer" / "config.json").write_text("{}")
    data = read_runs([sweep])
    assert len(data.runs) == 10
    for words in ("rope-s0: cannot read", "skipped: tokenizer: cannot read"):
        assert any(words in note for note in data.notes)
    with pytest.raises(DataError, match="is not a folder"):
        read_runs([tmp_path / "nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the folder of a run has a config.json"):
        read_runs([tmp_path / "empty"])
