"""Programs that draw and report: their files, and what they print."""

import subprocess
import sys

import pytest
from evaluated import make_run
from running import ROOT, finish


@pytest.mark.slow
def test_the_program_draws_what_it_says(program, tmp_path):
    run = tmp_path / "run"
    finish(program("train.py", run, config="sinusoidal"))
    command = [sys.executable, "scripts/plot_encodings.py", str(run), f"--out={tmp_path / 'out'}"]
    done = subprocess.run([*command, "--length=16"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "position in the keys" in done.stdout
    made = sorted(path.name for path in (tmp_path / "out").glob("*.png"))
    assert made == sorted(
        ["rope_reach.png", "rope_distances.png", "rope_wavelengths.png", "biases.png"]
        + ["similarity.png", "terms_sinusoidal.png", "remapped.png", "windows.png"]
        + ["gates.png"]
    )


def test_half_a_sweep_is_reported(tmp_path):
    wandb = {"mode": "offline", "project": "p", "group": "", "required": True}
    make_run(tmp_path / "sweep" / "rope-s0", "rope", 0, wandb=wandb)
    make_run(tmp_path / "sweep" / "t5-s0", "t5", 0, evaluated=False)
    out = tmp_path / "out"
    command = [sys.executable, "scripts/report.py", str(tmp_path / "sweep"), f"--out={out}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "2 runs, 1 of them evaluated" in done.stdout, done.stderr
    assert "t5-s0: not evaluated yet" in done.stderr
    assert "wandb" not in done.stdout + done.stderr and not (out / "wandb").exists()
    assert {"index.html", "same_token.png"} <= {path.name for path in out.iterdir()}
    captions = (out / "captions.md").read_text()
    assert "**same_token.png**" in captions and "over seeds of each line alone" in captions
    assert "compare.py pairs them" in captions
    done = subprocess.run([*command[:2], "nothing"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 65 and "not a folder" in done.stderr and "Trace" not in done.stderr
