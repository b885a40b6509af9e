"""python tests/compare_revisions.py REV_A REV_B

Train and evaluate the same tiny runs with two revisions of this repository, each in a temporary
checkout, and compare the digests of the weights and curves.csv, in the rows and columns that both
have. One run is stopped halfway and resumed. A revision is any git revision, or `tree` for the
working tree.
"""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FIELDS = {
    "model.width": 16,
    "model.heads": 2,
    "model.layers": 2,
    "train_length": 32,
    "batch_size": 4,
    "accumulate": 2,
    "steps": 12,
    "warmup_steps": 2,
    "log_every": 3,
    "valid_every": 5,
    "valid_batches": 2,
    "save_every": 4,
    "data.source": "text",
    "data.valid_fraction": 0.4,
    "wandb.mode": "disabled",
}
RUNS = {"rope": {}, "t5": {}, "learned": {}, "nope": {"stop_at": 6}}
KEY = ("extension", "scale", "window", "protocol", "length", "part", "step")
EVALUATION = {
    "multiples": "0.25,0.5,1,2,4",
    "extensions": "none,pi,yarn:2,dynamic_ntk,interpolate,logn",
    "protocols": "same_token,nonoverlap,sliding,position",
    "documents": 4,
    "windows": 2,
}


def main(revisions: list[str]) -> int:
    if len(revisions) != 2:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text")
        compared = [results(revision, folder, i) for i, revision in enumerate(revisions)]
    different = False
    for run in RUNS:
        (weights, rows), (new_weights, new_rows) = (of_runs[run] for of_runs in compared)
        common = rows.keys() & new_rows.keys()
        changed = [
            (key, *change)
            for key in sorted(common)
            if (change := changed_columns(rows[key], new_rows[key]))
        ]
        print(f"{run}: weights {'the same' if weights == new_weights else 'DIFFERENT'}")
        print(
            f"  rows: {len(common)} in both, {len(changed)} of them DIFFERENT; "
            f"{len(rows) - len(common)} in {revisions[0]} alone"
        )
        for key, *columns in changed[:3]:
            print(f"    {' '.join(key)}: {', '.join(columns[:2])}")
        different |= weights != new_weights or bool(changed) or len(common) < len(rows)
    return different


def rows_of(curves: str) -> dict[tuple[str, ...], dict[str, str]]:
    return {tuple(row[name] for name in KEY): row for row in csv.DictReader(io.StringIO(curves))}


def changed_columns(row: dict[str, str], new: dict[str, str]) -> list[str]:
    return [
        f"{name} {row[name]} is {new[name]}"
        for name in row.keys() & new.keys()
        if row[name] != new[name]
    ]


def write_text(folder: Path) -> None:
    folder.mkdir()
    for i in range(40):
        letters = np.random.default_rng(i).choice(list("abcdefgh "), 400)
        (folder / f"{i}.txt").write_text("".join(letters))


def results(revision: str, folder: Path, number: int) -> dict[str, tuple[str, dict]]:
    """Train and evaluate every run; return the digest of its weights and the rows of its curves."""
    tree = folder / f"tree{number}"
    check_out(revision, tree)
    by_run = {}
    for name, changes in RUNS.items():
        workdir = folder / f"runs{number}" / name  # the name is a column of the curves
        fields = FIELDS | changes | {"data.path": f"{folder}/text/*.txt"}
        fields["data.cache"] = f"{folder}/cache{number}"
        words = [f"--config=configs/{name}.py", f"--workdir={workdir}", *flags(fields)]
        if "stop_at" in changes:
            run(tree, "train.py", *words, code=75)
        run(tree, "train.py", *words)
        run(tree, "eval_extrapolation.py", f"--workdir={workdir}", *flags(EVALUATION))
        status = json.loads((workdir / "status.json").read_text())
        curves = (workdir / "eval" / "curves.csv").read_text()
        by_run[name] = status["digest"], rows_of(curves)
    return by_run


def check_out(revision: str, tree: Path) -> None:
    if revision == "tree":
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        for name in names.stdout.splitlines():
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        return
    tree.mkdir()
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)


def flags(fields: dict) -> list[str]:
    return [f"--config.{name}={value}" for name, value in fields.items()]


def run(tree: Path, *words: str, code: int = 0) -> None:
    environment = os.environ | {"PYTHONPATH": str(tree), "NPROC": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True
    )
    if done.returncode != code:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
