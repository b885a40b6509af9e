"""scripts/adopt.py: a pretrained model becomes a run, which every program reads as any other."""

import json
import sys

import ml_dtypes
import pytest
from curves import rows_of
from llamas import LLAMA, TEXT, L, V, drawn, write
from running import here, python, script


def test_an_adopted_model_is_a_run_for_every_program(call, tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"Number {number}. {TEXT}")
    files = f"{tmp_path}/*.txt"
    folder, run = write(tmp_path / "llama"), tmp_path / "run"
    for program in ("eval_extrapolation.py", "train.py"):
        answer = here(program, f"--workdir={folder}", code=2)
        assert f"python scripts/adopt.py {folder} --workdir=RUN" in answer
    facts = script("adopt.py", folder, f"--workdir={run}")
    assert f"reading {len(drawn())} arrays" in facts and f"tokens: {V - 6}" in facts
    assert "theta: 5000.0" in facts and "rope_type: default" in facts and "eps: 1e-05" in facts
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["code"], status["saved"]) == ("done", 0, 1)
    assert "holds a run already" in script("adopt.py", folder, f"--workdir={run}", code=2)

    data = [f"--config.data.path={files}", "--config.data.source=text"]
    data.append("--config.wandb.mode=disabled")
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none,pi,yarn"]
    answer = call("eval_extrapolation.py", run, *data, *words)
    assert "unknown; it may know this text" in answer
    rows = rows_of(run)
    assert all(row["nll"] for row in rows)  # finite
    assert {row["extension"] for row in rows} >= {"none", "pi", "yarn"}
    assert {int(row["length"]) for row in rows} == {L // 2, L, 2 * L}
    assert "yarn" in script("compare.py", f"{run}@yarn", f"{run}@none")
    script("report.py", run, f"--out={tmp_path / 'report'}")
    assert (tmp_path / "report" / "index.html").is_file()
    script("diagnose.py", f"{run}@none,yarn@{2 * L}", f"--path={files}")
    assert (run / "plots" / "attention.png").is_file()

    tuned = [f"--config.init_from={run}", "--config.steps=2", "--config.extension.scale=2"]
    tuned += ["--config=configs/finetune.py", f"--workdir={tmp_path / 'tuned'}"]
    here("train.py", *tuned, *data)
    config = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert (config["train_length"], config["extension"]["name"]) == (2 * L, "yarn")


SIZES = {  # 300 MB in bfloat16
    "vocab_size": 32_000,
    "hidden_size": 768,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 2048,
}
PEAK = """
import sys
import threading
import time
from pathlib import Path
from posenc_jax import backend
backend.configure()
import jax
from posenc_jax.pretrained.adopt import adopt
from posenc_jax.pretrained.saving import save_run
from posenc_jax.runs.subject import load_run

def held():  # without what the system keeps of files
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

def watch():
    while True:
        peak[0] = max(peak[0], held())
        time.sleep(0.005)

jax.numpy.zeros(1)
before, (what, *places), peak = held(), sys.argv[1:], [0]
threading.Thread(target=watch, daemon=True).start()
{"adopt": adopt, "load": load_run, "save": save_run}[what](*map(Path, places))
print(peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_adopting_holds_a_few_arrays_and_loading_and_saving_less_than_all_twice(tmp_path):
    arrays = drawn(ml_dtypes.bfloat16, LLAMA | SIZES)
    size = sum(array.nbytes for array in arrays.values())
    folder, run = write(tmp_path / "llama", arrays, LLAMA | SIZES), tmp_path / "run"
    del arrays
    adopting = int(python("-c", PEAK, "adopt", folder, run).split()[-1]) / size
    loading = int(python("-c", PEAK, "load", run)) / size
    saving = int(python("-c", PEAK, "save", run, tmp_path / "out").split()[-1]) / size
    print(f"of {size:,} bytes: adopting {adopting:.2f}, loading {loading:.2f}, saving {saving:.2f}")
    assert adopting <= 0.7 and loading <= 1.9 and saving <= 1.9
