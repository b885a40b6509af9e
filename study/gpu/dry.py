"""The plans at tiny sizes, to try every command of the campaign on a CPU."""

import json
import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.peers import ROOT

SIZE = {"model.layers": 1, "model.width": 16, "model.heads": 2, "batch_size": 4, "steps": 2}
FIELDS = SIZE | {"warmup_steps": 1, "save_every": 1, "model.dtype": "float32"}
EVALUATION = {"multiples": "1,4", "documents": 4}
JOBS = 2  # of a plan
PLAN = """from study.gpu import dry


def get_config():
    return dry.plan({name!r}, {workdir!r})
"""


def shortened(name: str, workdir: Path) -> Path:
    """A sweep file of a plan's first jobs, and the text that it reads."""
    if not (workdir / "tokens").exists():
        write_text(workdir)
    file = workdir / f"{name}.py"
    file.write_text(PLAN.format(name=name, workdir=str(workdir)))
    return file


def plan(name: str, workdir: str) -> dict:
    made = import_module(f"study.gpu.{name}").get_config()
    grid = [{k: v for k, v in job.items() if k not in FIELDS} for job in made["grid"][:JOBS]]
    places = {
        "data.tokens": f"{workdir}/tokens",
        "data.mixture": f"jsonl:0.8:path={workdir}/text.jsonl,variables:0.2:documents=40",
        "data.documents": 640,
        "init_from": f"{workdir}/extend/rope-s0",
        "train_length": 64,
    }
    fields = made["fields"] | FIELDS
    fields |= {field: place for field, place in places.items() if field in fields}
    lengths = {"multiples": "1,4"} if "multiples" in made["evaluation"] else {"lengths": "64,512"}
    return made | {
        "grid": grid,
        "fields": fields,
        "evaluation": made["evaluation"] | lengths | {"documents": 4},
    }


def write_text(workdir: Path) -> None:
    """Documents of 600 words, and their tokens."""
    draw = random.Random(0)
    texts = (" ".join(draw.choices("the of and to in a is that".split(), k=600)) for _ in range(40))
    text = workdir / "text.jsonl"
    text.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = ["--config=configs/rope.py", "--config.data.source=jsonl", f"--config.data.path={text}"]
    words += ["--vocab=300", f"--out={workdir}/bpe.json", f"--tokens_out={workdir}/tokens"]
    words += [f"--config.data.cache={workdir}/cache", "--config.data.valid_fraction=0.2"]
    command = [sys.executable, "scripts/prepare_data.py", *words]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
