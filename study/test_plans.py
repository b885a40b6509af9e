"""The plans for a GPU that is lent for minutes are valid."""

import json
from importlib import import_module

import numpy as np
import pytest
from configured import origin_of

from configs import base
from posenc_jax.config import schema
from posenc_jax.config.resolve import FORMAT
from posenc_jax.data import export
from posenc_jax.data.prepare import prepare
from posenc_jax.sweeping.jobs import jobs_of, refuse_mistakes


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
        made = plan(name).get_config()
        places = {"init_from": extended, "data.tokens": tokens}
        extra = [(field, str(place)) for field, place in places.items() if field in made["fields"]]
        return jobs_of(made, tmp_path / name, extra)

    return of


@pytest.mark.parametrize(
    ("name", "count", "tokens_seen", "longest"),
    [
        ("order", 30, 78.6e6, 4_096),
        ("small", 16, 214e6, 2_048),
        ("zoo", 16, 96e6, 16_384),
        ("extend", 1, 96e6, 16_384),
        ("finetune", 3, 13e6, 16_384),
    ],
)
def test_every_cell_of_a_plan_can_be_run(name, count, tokens_seen, longest, cells):
    made = cells(name)
    refuse_mistakes(made)
    assert len(made) == count and len({cell.name for cell in made}) == count
    for cell in made:
        config = cell.config
        seen = config.steps * config.batch_size * config.train_length
        assert abs(seen - tokens_seen) < 0.01 * tokens_seen
        asked = dict(cell.evaluation)
        lengths = [int(length) for length in asked.get("lengths", "0").split(",")]
        multiples = [float(multiple) for multiple in asked.get("multiples", "0").split(",")]
        assert max(*lengths, *(config.train_length * m for m in multiples)) == longest


def test_fine_tuning_starts_from_the_run_of_the_plan_before(extended):
    start = plan("finetune").get_config()["fields"]["init_from"]
    assert start == f"runs/gpu/extend/{extended.name}"
