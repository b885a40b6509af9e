"""The plans for a GPU that is lent for minutes: they are valid, their minutes are those of the
project's own count, and they run to their end."""

import dataclasses
import json
import re
from importlib import import_module

import numpy as np
import pytest
from configured import origin_of
from running import script

from configs import base
from posenc_jax.config import schema
from posenc_jax.config.resolve import FORMAT
from posenc_jax.data import export
from posenc_jax.data.prepare import prepare
from posenc_jax.runs import parameters
from posenc_jax.sweeping.jobs import jobs_of, refuse_mistakes
from posenc_jax.training.console import PEAK_FLOPS

PEAK = PEAK_FLOPS["NVIDIA H100 80GB HBM3"]
SIZE = {"model.layers": 1, "model.width": 16, "model.heads": 2, "batch_size": 4, "steps": 2}
TINY = SIZE | {"warmup_steps": 1, "model.dtype": "float32"}


def plan(name):
    return import_module(f"study.gpu.{name}")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """Tokens of documents that hold a window of 32 x 16 tokens."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "text").mkdir()
    for i in range(16):
        drawn = np.random.default_rng(i).choice("the of and to in a is that".split(), 600)
        (folder / "text" / f"{i}.txt").write_text(" ".join(drawn))
    data = base.get_config().data
    data.update(source="text", path=f"{folder}/text/*.txt", cache=str(folder), valid_fraction=0.4)
    made = prepare(origin_of(data), 0, quiet=True)
    export.write(made, folder / "tokens")
    return folder / "tokens"


@pytest.fixture
def extended(tokens, tmp_path):
    """The configuration of the run that fine-tuning starts from."""
    extra = [("data.tokens", str(tokens)), ("model.vocab", "4096")]
    (cell,) = jobs_of(plan("extend").get_config(), tmp_path / "extend", extra)
    cell.folder.mkdir(parents=True)
    (cell.folder / "config.json").write_text(
        json.dumps(schema.as_fields(cell.config) | {"format": FORMAT})
    )
    return cell.folder


@pytest.fixture
def cells(tokens, extended, tmp_path):
    def of(name):
        tuned = name == "finetune"
        extra = ("init_from", str(extended)) if tuned else ("data.tokens", str(tokens))
        return jobs_of(plan(name).get_config(), tmp_path / name, [extra])

    return of


@pytest.mark.parametrize(
    ("name", "count", "tokens_seen"),
    [("zoo", 16, 96e6), ("extend", 1, 96e6), ("finetune", 3, 13e6)],
)
def test_every_cell_of_a_plan_can_be_run(name, count, tokens_seen, cells):
    made = cells(name)
    refuse_mistakes(made)
    assert len(made) == count and len({cell.name for cell in made}) == count
    for cell in made:
        config = cell.config
        seen = config.steps * config.batch_size * config.train_length
        assert abs(seen - tokens_seen) < 0.01 * tokens_seen
        multiples = dict(cell.evaluation)["multiples"].split(",")
        assert config.train_length * float(multiples[-1]) == 16_384


def test_fine_tuning_starts_from_the_run_of_the_plan_before(extended):
    start = plan("finetune").get_config()["fields"]["init_from"]
    assert start == f"runs/gpu_extend/{extended.name}"


@pytest.mark.parametrize("name", ["zoo", "extend", "finetune"])
def test_the_minutes_of_a_plan_are_counted(name, cells):
    """Every number of minutes in its docstring, at the MFU that stands before it."""
    made = cells(name)
    config = made[0].config  # all of a plan are of one size
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab=4_096))
    done = config.steps * config.batch_size * config.train_length
    model = parameters.unextended(config).model
    run = model.flops_per_token(config.train_length) * done / PEAK / 60
    total = run * len(made)
    doc = " ".join((plan(name).__doc__ or "").split())
    said = {
        "zoo": (r"at 25% MFU ([\d.]+) minutes of training a run, ([\d.]+) in all; at 10%.*? "
                    r"([\d.]+)\.", (run / 0.25, total / 0.25, total / 0.1)),
        "extend": (r"at 25% MFU ([\d.]+) minutes of training, at 36%, the aim, ([\d.]+)\.",
                       (total / 0.25, total / 0.36)),
        "finetune": (r"at 25% MFU ([\d.]+) minutes of training a run, ([\d.]+) in all",
                         (run / 0.25, total / 0.25)),
    }[name]  # fmt: skip
    found = re.search(said[0], doc)
    assert found, doc
    for number, expected in zip(found.groups(), said[1], strict=True):
        assert abs(float(number) - expected) <= (0.05 if "." in number else 0.5), found[0]


SHORTER = """
from study.gpu import {name} as plan

def get_config():
    made = plan.get_config()
    return made | {{"evaluation": made["evaluation"] | {{"multiples": "1,4", "documents": 4}}}}
"""


@pytest.mark.slow
def test_plans_run_to_their_end(tokens, tmp_path):
    """Two steps of a tiny size, evaluated at two lengths alone, or it would take an hour."""
    runs = {name: tmp_path / name for name in ("zoo", "extend", "finetune")}

    def sweep(name, **fields):
        words = [f"--config.{field}={value}" for field, value in fields.items()]
        (tmp_path / f"{name}.py").write_text(SHORTER.format(name=name))
        plan_and_place = (f"--config={tmp_path / name}.py", f"--workdir={runs[name]}")
        return script("sweep.py", *plan_and_place, "--minutes=60", *words)

    tiny = TINY | {"data.tokens": tokens, "train_length": 16}
    out = sweep("extend", **tiny)
    assert "done: 1 run trained and evaluated" in out
    start = runs["extend"] / "rope-s0"
    tuned = {"init_from": start, "train_length": 64, "steps": 2, "warmup_steps": 1}
    out = sweep("finetune", **tuned)
    assert "done: 3 runs trained and evaluated" in out
    out = sweep("zoo", **tiny)
    assert "done: 16 runs trained and evaluated" in out
    assert len(list(runs["zoo"].glob("*/eval/curves.csv"))) == 16
