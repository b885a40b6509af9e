"""Publish what the runs of a sweep measured: python -m study.publish runs/ordered OUT

OUT/rows.csv.xz has every row of their evaluations, OUT/documents.parquet the answers of every cell
by document and how many are right, if there are any, OUT/runs.tar.xz configuration, status and
metrics. Runs that are not evaluated yet are left out; the same runs give the same files.
"""

import io
import re
import sys
import tarfile
from pathlib import Path

import pandas as pd

from posenc_jax.evaluation import sums_file
from posenc_jax.evaluation.sums import label

KEYS = ["run", "method", "protocol", "length", "part"]
KEPT = ("config.json", "status.json", "metrics.jsonl")


def main(sweep: Path, out: Path) -> None:
    runs = sorted(path.parents[1] for path in sweep.glob("*/eval/curves.csv"))
    runs = [run for run in runs if '"done"' in (run / "status.json").read_text()]
    out.mkdir(parents=True, exist_ok=True)
    rows = pd.concat([pd.read_csv(run / "eval" / "curves.csv") for run in runs])
    rows.to_csv(out / "rows.csv.xz", index=False)
    documents = pd.concat([answers_of(run) for run in runs])
    documents = documents.astype(dict.fromkeys(["run", "method", "protocol", "part"], "category"))
    if len(documents):
        documents.to_parquet(out / "documents.parquet", compression="zstd", index=False)
    with tarfile.open(out / "runs.tar.xz", "w:xz", preset=9) as archive:
        for run in runs:
            for name in KEPT:
                content = without_places((run / name).read_text(), sweep).encode()
                member = tarfile.TarInfo(f"{sweep.name}/{run.name}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    print(f"{out}: {len(runs)} runs, {len(rows):,} rows, {len(documents):,} documents of cells")


def without_places(text: str, sweep: Path) -> str:
    """The text with paths as they are from the repository and from the folder of runs."""
    text = text.replace(f"{sweep.resolve()}/", f"runs/{sweep.name}/")
    return re.sub(r"/[^ \"=]*/(train\.py|configs/)", r"\1", text)


def answers_of(run: Path) -> pd.DataFrame:
    """A row per cell and document that has answers."""
    found = []
    for cell in sums_file.read(run / "eval").cells:
        own = pd.DataFrame({"answers": cell.sums.answers, "right": cell.sums.right})
        own.insert(0, "document", range(len(own)))
        facts = cell.facts | {"method": label(cell.facts)}
        for place, name in enumerate(KEYS):
            own.insert(place, name, facts[name])
        found.append(own[own.answers > 0])
    counts = dict.fromkeys(["document", "answers", "right"], "int16")
    return pd.concat(found).astype(counts | {"length": "int32"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
