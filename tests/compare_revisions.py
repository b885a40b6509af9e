"""python tests/compare_revisions.py BEFORE AFTER [--keep=DIR] [--exact] [--gone=PROTOCOL,...]

Train, evaluate, sweep and report the same tiny runs with two revisions of this repository, and
compare what the programs write: digests of weights, losses of training, rows of curves.csv, rates
that a sweep chose, the tables of a report and those of the study. A revision is any git revision,
or `tree` for the working tree.

Rows are compared in the columns that both have; a row in BEFORE alone is a difference. --gone names
protocols that AFTER lacks; neither is asked for them, as the last bits of a loss depend on what is
evaluated with it. --exact also compares the bytes of every file in eval/ and of captions and
tables. --keep stores the results of a committed BEFORE in DIR and reads them the next time, on the
same machine, if this file is the same; AFTER is always trained. Exit 1: something differs.
"""

import argparse
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

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
    "data.path": "../text/*.txt",  # programs run in the tree; no path in a result is absolute
    "data.valid_fraction": 0.4,
    "data.cache": "../cache",
    "wandb.mode": "disabled",
}
OF_INIT = dict.fromkeys(FIELDS.keys() - {"steps", "warmup_steps", "log_every", "wandb.mode"})
NO_TEXT = {"data.source": None, "data.path": None}
MIXTURE = "text:0.6:path=../text/*.txt,variables:0.4:documents=40"
READ = {
    "multiples": "0.25,0.5,1,2,4",
    "extensions": "none,pi,yarn:2,dynamic_ntk,interpolate,logn",
    "protocols": "same_token,nonoverlap,sliding,position,effective",
    "documents": 4,
    "windows": 2,
}
SHORT = READ | {"multiples": None, "lengths": "32,64,128", "last": 8, "extensions": "none,yarn:2"}
PIECES = SHORT | {"name": "pieces", "piece": 16, "protocols": "same_token,position"}
LONG = SHORT | {"name": "long", "lengths": "32,256", "protocols": "order,copies"}
ANSWERS = SHORT | {"documents": 16, "protocols": "answers,gap,depth,order"}
OTHER = SHORT | {"data.source": "variables", "protocols": "answers,gap"}


class Run(NamedTuple):
    config: str
    fields: dict[str, Any] = {}
    evaluations: tuple[dict[str, Any], ...] = (READ,)
    devices: int = 1  # from the resumption on


RUNS = {
    "rope": Run("rope.py", evaluations=(READ, PIECES, LONG)),
    "t5": Run("t5.py"),
    **{f"rope-{seed}": Run("rope.py", {"seed": seed}) for seed in (1, 2)},
    **{f"t5-{seed}": Run("t5.py", {"seed": seed}) for seed in (1, 2)},
    "learned": Run("learned.py"),
    "nope": Run("nope.py", {"stop_at": 6}),
    "alibi": Run("alibi.py", {"stop_at": 6}, (SHORT,), devices=2),
    "fox": Run("fox.py", {}, (SHORT, PIECES)),
    "dape": Run("dape.py", {"encoding.inner": "rope"}, (SHORT,)),
    "tuned": Run("finetune.py", OF_INIT | {"init_from": "../runs/rope"}, (SHORT,)),
    "ordered": Run("ordered.py:rope", NO_TEXT | {"data.documents": 60}, (ANSWERS,)),
    "mixture": Run("mixture.py:rope", NO_TEXT | {"data.mixture": MIXTURE}, (SHORT, OTHER)),
}
GROUPS = [name for name in RUNS if name.partition("-")[0] in ("rope", "t5")]  # of the report
LAST = "tuned"  # goes on from another run
REPORT, SWEEP, STUDY = "report", "sweep", "stud" + "y"
CHOOSING = """
from posenc_jax.sweeping.rates import Rates

def get_config():
    return {
        "grid": [{"recipe": "configs/t5.py", "seed": seed} for seed in (0, 1)],
        "choose": Rates(),
        "fields": FIELDS,
        "evaluation": {"protocols": "same_token", "extensions": "none", "multiples": "1,2"},
    }
"""
EVALUATIONS = [fields for run in RUNS.values() for fields in run.evaluations]
PROTOCOLS = {name for fields in EVALUATIONS for name in fields["protocols"].split(",")}
KEY = "run evaluation extension scale window method protocol length part step table rank".split()
VOLATILE = ("tokens_per_second", "mfu", "memory_mib", "time")  # of metrics.jsonl


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--gone", default="")
    options = parser.parse_args(argv)
    gone = sorted(PROTOCOLS & {*options.gone.split(",")})
    with tempfile.TemporaryDirectory() as name:
        before = kept(options.before, options.keep, Path(name, "before"), gone)
        different = [
            after.name
            for after in results(options.after, Path(name, "after"), gone)
            if differs(before / after.name, after, options.exact)
        ]
    print(f"DIFFERENT: {', '.join(different)}" if different else "the same")
    return bool(different)


def kept(revision: str, keep: Path | None, folder: Path, gone: list[str]) -> Path:
    """The folder of all results of a revision, trained unless they were kept."""
    if keep is None or revision == "tree":
        return list(results(revision, folder, gone))[-1].parent
    commit = git("rev-parse", f"{revision}^0").decode().strip()
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    stored = keep / "-".join([commit, own, *gone])
    if not stored.exists():
        runs, unfinished = kept(revision, None, folder, gone), f"{stored}.unfinished"
        ignored = shutil.ignore_patterns("checkpoints")
        shutil.copytree(runs, unfinished, ignore=ignored, dirs_exist_ok=True)
        os.rename(unfinished, stored)
    return stored


def results(revision: str, folder: Path, gone: list[str]) -> Iterator[Path]:
    """Train and evaluate every run, sweep, report on some and make the study's tables; yield the
    folder of each when done."""
    tree, runs = folder / "tree", folder / "runs"
    check_out(revision, tree)
    write_text(folder / "text")

    def done(name: str) -> Path:
        print(f"{revision}: {name}", flush=True)
        if name == SWEEP:
            sweep(tree, runs / SWEEP)
        elif name == STUDY:
            study_tables(tree, runs / STUDY)
        else:
            train_and_evaluate(tree, name, gone)
        return runs / name

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(done, [*(name for name in RUNS if name != LAST), STUDY, LAST, SWEEP])
    out = runs / REPORT
    call(tree, "scripts/report.py", *(f"../runs/{name}" for name in GROUPS), f"--out={out}")
    call(tree, "scripts/report.py", "../runs/ordered", "../runs/mixture", f"--out={out}/answers")
    for page in (out, out / "answers"):
        (page / "page.json").write_text(json.dumps(tables_of((page / "index.html").read_text())))
    yield out


def sweep(tree: Path, folder: Path) -> None:
    fields = FIELDS | {"data.choose_fraction": 0.2, "steps": 6, "save_every": 6, "valid_every": 3}
    file = tree / "choosing.py"
    file.write_text(CHOOSING.replace("FIELDS", repr(fields)))
    call(tree, "scripts/sweep.py", f"--config={file}", f"--workdir=../runs/{folder.name}")


def study_tables(tree: Path, folder: Path) -> None:
    """Every table of the study, made from its rows."""
    call(tree, "-m", f"{STUDY}.tables")
    pages = [tree / "README.md", *sorted((tree / STUDY).rglob("*.md"))]
    found = {
        f"{page.relative_to(tree)} {name}": table.strip()
        for page in pages
        for name, table in re.findall(
            r"<!-- table (\S+) -->(.*?)<!-- end -->", page.read_text(), re.S
        )
    }
    folder.mkdir(parents=True)
    (folder / "tables.json").write_text(json.dumps(found))


def train_and_evaluate(tree: Path, name: str, gone: list[str]) -> None:
    run = RUNS[name]
    workdir = f"--workdir=../runs/{name}"
    words = ["train.py", f"--config=configs/{run.config}", workdir, *flags(FIELDS | run.fields)]
    if "stop_at" in run.fields:
        call(tree, *words, code=75)
    call(tree, *words, devices=run.devices)
    for fields in run.evaluations:
        protocols = ",".join(name for name in fields["protocols"].split(",") if name not in gone)
        words = flags(fields | {"protocols": protocols})
        call(tree, "eval_extrapolation.py", workdir, *words, devices=run.devices)


def tables_of(page: str) -> list[dict[str, str]]:
    """The rows of every table of a page, and what its pictures show under the pointer."""
    page, rows = page.partition("<h2>Runs</h2>")[0], []
    for number, table in enumerate(re.findall(r"<table.*?</table>", page, re.DOTALL)):
        for rank, line in enumerate(re.findall(r"<tr.*?</tr>", table, re.DOTALL)):
            cells = re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", line, re.DOTALL)
            rows.append({"table": f"{number}", "rank": f"{rank}", "line": " | ".join(cells)})
    values = re.findall(r'data-value="([^"]*)"', page)
    rows += [{"table": "values", "rank": f"{i}", "line": line} for i, line in enumerate(values)]
    assert rows, "the report has no tables"
    return rows


def differs(before: Path, after: Path, exact: bool) -> bool:
    """Print what differs between the results of a run; True if anything does."""
    rows, new = rows_of(before), rows_of(after)
    lines = [
        f"{' '.join(filter(None, key))}: {name} {row[name]} is {new[key][name]}"
        for key, row in rows.items()
        for name in row
        if row[name] != new.get(key, row).get(name, row[name])
    ]
    missing = sorted(rows.keys() - new.keys())
    lines += [f"{' '.join(filter(None, key))}: in BEFORE alone" for key in missing]
    if exact:
        left, right = files_of(before), files_of(after)
        names = sorted(n for n in left.keys() | right.keys() if left.get(n) != right.get(n))
        lines += [f"{name}: other bytes, or in one alone" for name in names]
    result = f"{len(lines)} DIFFERENT" if lines else "the same"
    print(f"  {before.name}: {len(rows)} rows, {len(missing)} in BEFORE alone: {result}")
    print("".join(f"    {line}\n" for line in lines[:5]), end="", flush=True)
    return bool(lines)


def rows_of(folder: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """What was measured in a folder, by what identifies it."""
    listed: list[dict[str, str]] = []
    if folder.name == STUDY:
        tables = json.loads((folder / "tables.json").read_text())
        listed = [{"table": name, "line": text} for name, text in tables.items()]
    elif folder.name == REPORT:
        for page in (folder, folder / "answers"):
            listed += [
                row | {"run": page.name} for row in json.loads((page / "page.json").read_text())
            ]
            blocks = (page / "tables.md").read_text().split("\n\n")
            for caption, lines in zip(blocks[::2], blocks[1::2], strict=True):
                for rank, line in enumerate(lines.splitlines()):
                    listed.append(
                        {"table": caption, "rank": f"{rank}", "line": line} | {"run": page.name}
                    )
    elif folder.name == SWEEP:
        with (folder / "choices.csv").open() as stream:
            listed = [row | {"table": "choices"} for row in csv.DictReader(stream)]
        for run in sorted(path.parent for path in folder.glob("*/status.json")):
            listed += [row | {"run": run.name} for row in rows_of_run(run)]
    else:
        listed = rows_of_run(folder)
    rows = {tuple(row.get(name, "") for name in KEY): row for row in listed}
    assert len(rows) == len(listed), f"two rows of {folder} have the same key"
    return rows


def rows_of_run(folder: Path) -> list[dict[str, str]]:
    status = json.loads((folder / "status.json").read_text())
    listed = [{"method": "weights", "digest": status["digest"]}]
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        values = {name: f"{value}" for name, value in line.items() if name not in VOLATILE}
        listed.append({"method": "training"} | values)
    if (folder / "eval" / "curves.csv").exists():
        with (folder / "eval" / "curves.csv").open() as stream:
            listed += csv.DictReader(stream)
    return listed


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of an evaluation or a report that hold neither times nor paths."""
    patterns = ("eval/**/[!.]*", "plots/*.md", "*.md", "*.tex")
    files = (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return {f"{path.relative_to(folder)}": path.read_bytes() for path in files}


def write_text(folder: Path) -> None:
    folder.mkdir()
    for i in range(40):
        letters = np.random.default_rng(i).choice(list("abcdefgh "), 400)
        (folder / f"{i}.txt").write_text("".join(letters))


def check_out(revision: str, tree: Path) -> None:
    tree.mkdir(parents=True)
    if revision != "tree":
        subprocess.run(["tar", "-x", "-C", tree], input=git("archive", revision), check=True)
        return
    for name in git("ls-files", "--cached", "--others", "--exclude-standard").decode().splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def flags(fields: dict[str, Any]) -> list[str]:
    return [f"--config.{name}={value}" for name, value in fields.items() if value is not None]


def call(tree: Path, *words: str, code: int = 0, devices: int = 1) -> None:
    forced = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"PYTHONPATH": str(tree), "NPROC": "1", "XLA_FLAGS": forced}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True
    )
    if done.returncode != code:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
