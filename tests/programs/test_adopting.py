"""A pretrained model through the programs, which read it as any other run."""

import csv
import json

from llamas import TEXT, L, write
from running import python, script


def test_an_adopted_model_is_a_run_for_every_program(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"Number {number}. {TEXT}")
    files = f"{tmp_path}/*.txt"
    folder, run = write(tmp_path / "llama"), tmp_path / "run"
    for program in ("eval_extrapolation.py", "train.py"):
        answer = python(program, f"--workdir={folder}", code=2)
        assert f"python scripts/adopt.py {folder} --workdir=RUN" in answer
    facts = script("adopt.py", folder, f"--workdir={run}")
    assert "theta: 5000.0" in facts and "rope_type: default" in facts and "eps: 1e-05" in facts
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["code"], status["saved"]) == ("done", 0, 1)
    assert "holds a run already" in script("adopt.py", folder, f"--workdir={run}", code=2)

    fields = [f"--config.data.path={files}", "--config.data.source=text"]
    fields += ["--config.multiples=0.5,1,2", "--config.extensions=none,pi,yarn"]
    fields += ["--config.wandb.mode=disabled"]
    python("eval_extrapolation.py", f"--workdir={run}", *fields)
    with (run / "eval" / "curves.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["extension"] for row in rows} >= {"none", "pi", "yarn"}
    assert {int(row["length"]) for row in rows} == {L // 2, L, 2 * L}
    assert "yarn" in script("compare.py", f"{run}@yarn", f"{run}@none")
    script("report.py", run, f"--out={tmp_path / 'report'}")
    assert (tmp_path / "report" / "index.html").is_file()
    script("diagnose.py", f"{run}@none,yarn@{2 * L}", f"--path={files}")
    assert (run / "plots" / "attention.png").is_file()

    tuned = [f"--config.init_from={run}", "--config.data.source=text"]
    tuned += [f"--config.data.path={files}", "--config.steps=2", "--config.wandb.mode=disabled"]
    tuned += ["--config=configs/finetune.py", "--config.extension.scale=2"]
    python("train.py", f"--workdir={tmp_path / 'tuned'}", *tuned)
    config = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert (config["train_length"], config["extension"]["name"]) == (2 * L, "yarn")
