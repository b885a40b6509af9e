"""Weights as safetensors: by the names that plain Orbax shows, equal to those of a loaded run."""

import json
import subprocess
import tarfile
from contextlib import closing
from tempfile import gettempdir

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from running import EVALUATION, here, script
from safetensors import safe_open

import posenc_jax
from posenc_jax.config.compare import differences
from posenc_jax.evaluation.archive import FOLDERS
from posenc_jax.runs import export
from posenc_jax.runs.checkpoints import Checkpoints, total_digest
from posenc_jax.runs.parameters import trained_arrays
from posenc_jax.runs.subject import load_subject
from posenc_jax.runtime.errors import Stop
from posenc_jax.runtime.trees import by_path


@pytest.fixture(scope="module")
def run(call, tmp_path_factory):
    """A run whose encoding is trained too."""
    workdir = tmp_path_factory.mktemp("runs") / "fire"
    call("train.py", workdir, config="fire")
    return workdir


def read(path):
    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def test_the_file_holds_the_weights_of_the_run_by_the_names_of_orbax(run, tmp_path):
    path = tmp_path / "new" / "fire.safetensors"
    out = script("export.py", run, f"--out={path}")
    arrays, facts = read(path)
    shown = ocp.StandardCheckpointer().restore(run / "checkpoints" / "12" / "state")
    assert set(arrays) == {name for name in shown if name.startswith("params.")}
    assert any(name.startswith("params.encoding.") for name in arrays)
    model, encoding, _, _ = posenc_jax.load_run(run)
    loaded = {f"params.model.{name}": leaf for name, leaf in by_path(model).items()}
    loaded |= {f"params.encoding.{n}": leaf for n, leaf in trained_arrays(encoding).items()}
    assert set(arrays) == set(loaded)
    for name, array in arrays.items():
        for other in (loaded[name], shown[name]):
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other)
    assert facts["weights_digest"] == total_digest(arrays) and facts["step"] == "12"
    assert facts["digest"] == json.loads((run / "status.json").read_text())["digest"]
    assert json.loads(facts["config"]) == json.loads((run / "config.json").read_text())
    assert f"{len(arrays)} arrays" in out


def test_export_takes_a_step_and_replaces_files_only_with_overwrite(run, tmp_path):
    words = ["export.py", run, f"--out={tmp_path / 'weights.safetensors'}"]
    script(*words, "--step=8")
    assert "already exists; --overwrite replaces it" in script(*words, code=2)
    assert read(tmp_path / "weights.safetensors")[1]["step"] == "8"
    script(*words, "--overwrite")
    assert read(tmp_path / "weights.safetensors")[1]["step"] == "12"
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]


def test_runs_are_packed_to_be_taken_away(run, evaluated_once, tmp_path):
    packed = tmp_path / "packed.tar.xz"
    out = script("export.py", run, evaluated_once[0], f"--out={packed}").splitlines()
    assert out[2:] == ['posenc_jax.load_run("runs/fire")', 'posenc_jax.load_run("runs/rope")']
    subprocess.run(["sha256sum", "-c", "packed.tar.xz.sha256"], cwd=tmp_path, check=True)
    (tmp_path / "runs").mkdir()
    subprocess.run(["tar", "xf", packed, "-C", "runs"], cwd=tmp_path, check=True)
    for name, own in (("fire", run), ("rope", evaluated_once[0])):
        one, other = posenc_jax.load_run(own), posenc_jax.load_run(tmp_path / "runs" / name)
        (moved,) = differences(one.config, other.config)
        assert moved.startswith("data.path") and moved.endswith("'*.txt' now")
        assert one.tokenizer.hash == other.tokenizer.hash
        assert total_digest(one[:2]) == total_digest(other[:2])
        assert len(load_subject(tmp_path / "runs" / name).digests)  # evaluations read them
        with closing(Checkpoints(tmp_path / "runs" / name, read_only=True)) as checkpoints:
            arrays = checkpoints.card(12)["digests"]
        assert arrays and all(array.startswith("params.") for array in arrays)
    assert "several runs go into an archive" in script("export.py", run, run, "--out=x", code=2)
    rows, others = (posenc_jax.curves(path) for path in (evaluated_once[0], tmp_path / "runs/rope"))
    free = ["run", "text"]
    assert others.drop(columns=free).equals(rows.drop(columns=free))
    out = script("export.py", run, run, f"--out={tmp_path}/other.tar.xz", code=2)
    assert "two runs are named fire" in out


def test_an_archive_names_no_folder_and_no_machine(evaluated_once, text, tmp_path):
    script("export.py", evaluated_once[0], f"--out={tmp_path / 'packed.tar.xz'}")
    with tarfile.open(tmp_path / "packed.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    files = [path for path in (tmp_path / "rope").rglob("*") if path.is_file()]
    assert not [path for path in files if path.name in (".lock", "commit_success.txt")]
    folders = str(text).encode(), gettempdir().encode()
    assert not [path for path in files if any(one in path.read_bytes() for one in folders)]
    assert set(posenc_jax.curves(tmp_path / "rope").text) == {"held out of text:*.txt"}
    config = tmp_path / "rope" / "config.json"  # where the place of the text is named again
    config.write_text(config.read_text().replace('"*.txt"', f'"{text}/*.txt"'))
    here("eval_extrapolation.py", f"--workdir={config.parent}", *EVALUATION)


@pytest.mark.parametrize(
    "place, name",
    [
        ("/a b/c:d/*.txt, /e/f/,~g/h", "*.txt, f/,h"),
        (
            "text:0.5:path=/a/b/*.txt:begins=c/d,jsonl:0.5:path=/e",
            "text:0.5:path=*.txt:begins=c/d,jsonl:0.5:path=e",
        ),
        ("books/*.txt", "books/*.txt"),
        ("held out of tokens:/a/b", "held out of tokens:b"),
    ],
)
def test_a_place_in_an_archive_is_its_name(place, name):
    assert FOLDERS.sub(r"\1", place) == name


def test_a_run_that_holds_its_exported_weights_is_still_a_run(run):
    inside = run / "weights.safetensors"
    script("export.py", run, f"--out={inside}")
    assert posenc_jax.load_run(run).config.steps == 12
    inside.unlink()


def test_an_export_that_cannot_work_is_refused(run, tmp_path):
    out = tmp_path / "weights.safetensors"
    with pytest.raises(Stop, match="none is not the workdir of a run: it has no config.json"):
        export.export(tmp_path / "none", out)
    (tmp_path / "file").touch()
    with pytest.raises((Stop, OSError), match="file"):
        export.export(run, tmp_path / "file" / "weights.safetensors")
    assert not out.exists()


def test_every_dtype_and_order_in_memory_survives(tmp_path):
    arrays = {
        "half": np.asarray(jnp.linspace(-3e38, 3e38, 6).astype(jnp.bfloat16)),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "scalar": np.asarray(0.1, np.float32),
        "counts": np.arange(3, dtype=np.int32),
    }
    export.write(tmp_path / "all.safetensors", export.Weights(arrays, {"step": "1"}))
    found, facts = read(tmp_path / "all.safetensors")
    assert facts == {"step": "1"} and set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
