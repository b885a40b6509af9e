"""Records of a run that someone damaged are named by file and line, and end nothing else."""

import json

import pytest
from evaluated import make_run

from posenc_jax.runs.metrics import Metrics, read_metrics
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime.errors import Stop
from scripts import report

BAD = [
    ("5", "not an object: 5"),
    ("[1, 2]", "not an object"),
    ('{"loss": 2.0}', "step must be a whole number; got None"),
    ('{"step": "7", "loss": 2.0}', "step must be a whole number; got '7'"),
    ('{"step": 1.5, "loss": 2.0}', "step must be a whole number; got 1.5"),
    ('{"step": 7, "loss": "low"}', "loss must be a number; got 'low'"),
    ('{"step": 7, "memory_mib": [3]}', r"memory_mib must be a number; got \[3\]"),
]


@pytest.mark.parametrize(("line", "why"), BAD)
def test_a_bad_line_of_metrics_is_named(line, why, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "loss": null}}\n{line}\n')
    with pytest.raises(Stop, match=f"metrics.jsonl is damaged: line 2: {why}"):
        read_metrics(path)


@pytest.mark.parametrize("line", [line for line, _ in BAD])
def test_a_resumed_run_skips_bad_lines_of_metrics(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
    Metrics(path, resume_at=9)
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]


def test_bad_metrics_become_a_note_in_the_report(tmp_path, capsys):
    for seed in (0, 1):
        make_run(tmp_path / "zoo" / f"rope-s{seed}", "rope", seed)
    with (tmp_path / "zoo" / "rope-s1" / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 7, "loss": "low"}\n')
    words = ["report.py", str(tmp_path / "zoo"), f"--out={tmp_path / 'out'}"]
    assert report.main(words) == 0
    said = capsys.readouterr()
    assert "rope-s1/metrics.jsonl is damaged: line 4: " in said.err
    assert "2 runs, 2 of them evaluated" in said.out


@pytest.mark.parametrize(
    "status",
    [[], 3, None, {"state": 5}, {"step": "7"}, {"saved": None}, {"speed": "fast"}, {"data": []}],
)
def test_a_status_of_another_kind_names_the_file(status, tmp_path):
    (tmp_path / "status.json").write_text(json.dumps(status))
    with pytest.raises(Stop, match=f"{tmp_path}/status.json is damaged: "):
        Workdir(tmp_path).read_status()


def test_a_damaged_status_does_not_hide_the_reason(tmp_path):
    (tmp_path / "status.json").write_text("[]")
    run = Workdir(tmp_path)
    with pytest.raises(Stop, match="its own reason"), run.opened():
        raise Stop("its own reason")
    assert run.read_status()["reason"] == "its own reason"
