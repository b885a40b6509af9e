"""Runs of the first wave: what they meant is what they mean."""

import csv
import hashlib
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from running import ROOT

import posenc_jax
from posenc_jax.runs.checkpoints import Checkpoints

KEPT = ROOT / "tests" / "format1"
T5 = f"{ROOT}/configs/t5.py"
RECIPE = {
    "model.width": 8,
    "model.heads": 2,
    "train_length": 16,
    "accumulate": 1,
    "steps": 8,
    "valid_every": 3,
    "save_every": 3,
    "log_every": 2,
    "keep": 1,
    "learning_rate": 0.1,
    "data.valid_fraction": 0.6,
    "data.path": "text/*.txt",
    "data.cache": "cache",
    "encoding.scale": 1.0,
    "encoding_rate": 1.0,
}


@pytest.fixture
def kept(tmp_path, monkeypatch, call):
    """A run of format 1, in the folder that its configuration names files from."""
    shutil.copytree(KEPT, tmp_path / "format1")
    monkeypatch.chdir(tmp_path / "format1")
    monkeypatch.syspath_prepend(ROOT)
    return tmp_path / "format1"


def test_a_run_of_format_1_has_the_losses_it_had(kept):
    model, encoding, config, _ = posenc_jax.load_run(kept / "run")
    assert encoding.scale == config.encoding.scale == 1.0 and config.encoding_rate == 1.0
    nats = []
    for path in sorted((kept / "text").iterdir()):
        text = path.read_bytes()
        if int.from_bytes(hashlib.sha256(text).digest()[:8], "big") < 0.6 * 2.0**64:
            tokens = jnp.array(np.frombuffer(text, np.uint8)[: 2 * 64 + 1], jnp.int32)
            windows = jnp.stack([tokens[:65], tokens[64:]])
            nats.append(model.losses(windows[:, :-1], windows[:, 1:], encoding)[0])
    with (kept / "run" / "eval" / "curves.csv").open() as stream:
        (row,) = [
            r
            for r in csv.DictReader(stream)
            if (r["protocol"], r["length"], r["window"]) == ("nonoverlap", "64", "")
        ]
    assert int(row["tokens"]) == np.size(nats) == 640
    np.testing.assert_allclose(np.mean(nats), float(row["nll"]), rtol=1e-6)
    today = encoding.replace(scale=np.sqrt(4.0))  # of a head of 4: another model
    other = model.losses(windows[:, :-1], windows[:, 1:], today)[0]
    assert np.max(np.abs(other - nats[-1])) > 1e-3


def test_a_run_of_format_1_goes_on_and_is_of_the_new_one_then(kept, call):
    fields = RECIPE | {"model.layers": 1}
    other = {name: value for name, value in fields.items() if not name.startswith("encoding")}
    out = call("train.py", "run", config=T5, code=76, **other)
    assert "encoding.scale: 1.0 in the workdir, None now" in out
    assert "encoding_rate: 1.0 in the workdir, 4.0 now" in out
    call("train.py", "run", config=T5, **fields)
    status = json.loads((kept / "run" / "status.json").read_text())
    assert status["state"] == "done" and status["step"] == 8
    assert json.loads((kept / "run" / "config.json").read_text())["format"] == 2
    card = Checkpoints(kept / "run", read_only=True).card(8)
    assert card["format"] == 2 and len(card["trained_on"]) == 64
    assert posenc_jax.load_run(kept / "run")[1].scale == 1.0


def test_a_run_of_format_1_is_evaluated_beside_what_it_had(kept, call):
    words = ["--config.multiples=0.5,1,2,4", "--config.spread=False", "--config.windows=2"]
    call("eval_extrapolation.py", "run", *words)
    with (kept / "run" / "eval" / "curves.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    at = {}
    for row in rows:
        if not row["window"] and row["protocol"] != "sliding":
            key = row["protocol"], row["length"]
            at.setdefault(key, {})[row["evaluation"]] = float(row["nll"])
    both = [values for values in at.values() if len(values) == 2]
    assert len(both) == 9
    for values in both:
        assert values["held-out"] == pytest.approx(values["unnamed"], rel=1e-5)


def test_a_format_there_is_not_yet_is_refused_in_a_line(kept, call):
    path = kept / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 3}))
    out = call("eval_extrapolation.py", "run", code=74)
    assert "format 3 is not known here; this version reads 1 to 2" in out
    assert len(out.strip().splitlines()) == 1
