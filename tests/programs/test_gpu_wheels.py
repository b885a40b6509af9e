"""What a machine without a network is given: wheels beside an image that has its own jax."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prepared_texts import recipe, text_of, words
from running import ROOT, script

from posenc_jax.errors import Stop
from scripts import gpu_wheels

IMAGE = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")
LACKS = {"ml-collections", "absl-py", "pyyaml", "tqdm", "wandb", "datasets", "tokenizers"}


def test_every_package_has_a_version_that_is_pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    assert set(gpu_wheels.PACKAGES.values()) <= pinned
    for name in gpu_wheels.PACKAGES:
        assert gpu_wheels._importable(name)


def test_what_is_there_is_not_installed_again(tmp_path):
    out = script("gpu_wheels.py", f"--install={tmp_path / 'site'}", f"--wheels={tmp_path}")
    assert (
        "installed: nothing, all is there" in out
        and f"PYTHONPATH={ROOT}:{tmp_path / 'site'}" in out
    )
    assert not list(tmp_path.iterdir())


def test_what_is_missing_and_has_no_wheel_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_wheels, "_importable", lambda name: name != "tqdm")
    with pytest.raises(Stop, match="tqdm cannot be imported, and there is no folder"):
        gpu_wheels.install(tmp_path / "wheels", tmp_path / "site")
    (tmp_path / "wheels").mkdir()
    with pytest.raises(Stop, match="pip install failed: ERROR: .*tqdm"):
        gpu_wheels.install(tmp_path / "wheels", tmp_path / "site")


def test_more_than_may_be_carried_is_refused(capsys):
    gpu_wheels.check({"repository": gpu_wheels.repository(), "tokens": 36 * 2**20})
    assert re.search(r"36.00 MiB  tokens\n +\d\d\.\d\d MiB  in all, of 60", capsys.readouterr().out)
    with pytest.raises(Stop, match="exceed the 60 that may be carried"):
        gpu_wheels.check({"repository": 2**20, "tokens": 60 * 2**20})


def of_the_image(site):
    """Links to the packages of the image and to what they need, but for those that it lacks."""
    waiting, seen = list(IMAGE), set()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen | LACKS:
            continue
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # of another platform or Python
            continue
        seen.add(name)
        needed = (line for line in found.requires or [] if "extra ==" not in line)
        waiting += [re.match(r"[\w.-]+", line)[0] for line in needed]
        for top in {path.parts[0] for path in found.files or [] if ".." not in path.parts}:
            there = Path(str(found.locate_file(top)))
            if there.exists() and not (site / top).exists() and top != "__pycache__":
                (site / top).symlink_to(there)


@pytest.fixture
def bare(tmp_path):
    """A Python that has the packages of the image and no other."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "bare")], check=True)
    (site,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    of_the_image(site)
    python = tmp_path / "bare" / "bin" / "python"

    def run(*command, code=0, **environment):
        done = subprocess.run(
            [python, *map(str, command)],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "NPROC": "1"} | environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_a_machine_with_the_image_alone_trains_and_evaluates(bare, tmp_path):
    """Needs the package index for the wheels, and nothing of it afterwards."""
    wheels, run = tmp_path / "wheels", tmp_path / "run"
    out = script("gpu_wheels.py", f"--wheels={wheels}", f"--tokens={tmp_path / 'tokens'}")
    names = [path.name for path in wheels.iterdir()]
    assert sum("none-any" in name for name in names) == 3 and "in all, of 60" in out
    assert sum(name.startswith("pyyaml") for name in names) == len(gpu_wheels.PYTHONS)
    (tmp_path / "text").mkdir()
    for i in range(12):
        (tmp_path / "text" / f"{i}.txt").write_text(words(i))
    script("prepare_data.py", *text_of(tmp_path), "--vocab=280", f"--out={tmp_path}/bpe.json")
    encoder = text_of(tmp_path, "bpe.json")
    script("prepare_data.py", *encoder, f"--tokens_out={tmp_path}/tokens")

    fields = recipe(**{"data.tokens": f"{tmp_path}/tokens"})
    assert "training and evaluation need absl" in bare("train.py", "--help", code=2)
    path = {"PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}"}
    wanted = [f"--wheels={wheels}", f"--install={tmp_path / 'site'}"]
    said = bare("scripts/gpu_wheels.py", *wanted, **path)
    assert "installed: absl-py, ml-collections, tqdm, pyyaml" in said
    assert "done: 12 steps" in bare("train.py", *fields, f"--workdir={run}", **path)
    small = ["--config.multiples=1,2", "--config.extensions=none", "--config.documents=4"]
    out = bare("eval_extrapolation.py", f"--workdir={run}", *small, **path)
    assert "no pictures: matplotlib" in out and (run / "eval" / "curves.csv").exists()
    gpu = ["-m", "benchmarks.gpu", "--plan=dry", f"--out={tmp_path / 'gpu'}"]
    assert "0 failed" in bare(*gpu, f"--wheels={wheels}")  # which it installs by itself
    again = bare("scripts/gpu_wheels.py", f"--install={tmp_path / 'site'}", **path)
    assert "nothing, all is there" in again
