"""Adding a family of models is one file: every program takes it."""

import json

import pytest
from additions import FAMILY
from running import TINY, copy_of


@pytest.mark.slow
def test_a_new_family_works_with_every_program(tmp_path, text):
    folder, workdir = tmp_path / "copy", tmp_path / "run"
    folder.mkdir()
    run = copy_of(folder)
    (folder / "models" / "heads_only.py").write_text(FAMILY)
    fields = TINY | {"data.path": f"{text}/*.txt", "model.family": "heads_only"}
    train = ["train.py", "--config=configs/fox.py", f"--workdir={workdir}"]
    train += [f"--config.{name}={value}" for name, value in fields.items()]
    run(*train, "--config.stop_at=6", code=75)
    run(*train)
    assert json.loads((workdir / "status.json").read_text())["step"] == TINY["steps"]
    run("eval_extrapolation.py", f"--workdir={workdir}", "--config.multiples=0.5,1,2")
    run("scripts/diagnose.py", f"{workdir}@none@64", "--documents=2")
    assert (workdir / "eval" / "diagnose" / "attention.csv").exists()
    run("scripts/report.py", workdir, f"--out={tmp_path / 'page'}")
    assert (tmp_path / "page" / "index.html").exists()
    out = run(*train[:2], "--workdir=other", "--config.model.family=head_only", code=2)
    assert "one of 'heads_only', 'transformer'" in out
