"""Publish what the runs of a sweep measured: python -m study.publish runs/ordered OUT [held-out]

OUT/rows.csv.xz has every row of their evaluations, or of the one named, OUT/runs.tar.xz
configuration, status and metrics. OUT/documents.csv.xz has the answers of every cell by document,
and how many are right, in a column per run and method. If all that was measured is answers, the
rows have no LEFT_OUT, columns that no table reads. Runs that are not evaluated yet are left out;
the same runs give the same files.
"""

import io
import lzma
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd

from posenc_jax.evaluation.cells import label
from posenc_jax.evaluation.records import read_cells

CELL = ["protocol", "length", "part"]
FACTS = ["run", "evaluation", "method", *CELL, "token_hash", "processor"]
OVER = [f"over_{baseline}" for baseline in ("window", "fresh", "streaming")]
LEFT_OUT = ["ppl", "bpb", "nll_se", "null_nll", "null_low", "null_high"]
LEFT_OUT += ["gain_bpb", "gain_low", "gain_high", *OVER]
LEFT_OUT += [f"{name}_{end}" for name in OVER for end in ("low", "high")]
XZ: Any = {"method": "xz", "preset": 9 | lzma.PRESET_EXTREME}
KEPT = ("config.json", "status.json", "metrics.jsonl")


def main(sweep: Path, out: Path, evaluation: str = "") -> None:
    runs = sorted(path.parents[1] for path in sweep.glob("*/eval/curves.csv"))
    runs = [run for run in runs if '"done"' in (run / "status.json").read_text()]
    out.mkdir(parents=True, exist_ok=True)
    files = [run / "eval" / "curves.csv" for run in runs]
    rows = pd.concat([pd.read_csv(file, dtype=str, keep_default_na=False) for file in files])
    if evaluation:
        rows = rows[rows.evaluation == evaluation]
    documents = pd.concat(map(documents_of, runs))
    if evaluation:
        documents = documents[documents.evaluation == evaluation]
    documents = documents[documents.answers > 0].astype({"answers": int})
    if len(documents):
        by_run(documents).to_csv(out / "documents.csv.xz", compression=XZ)
    if not ((rows.tokens != "") & (rows.answers == "")).any():
        rows = rows.drop(columns=LEFT_OUT, errors="ignore")
    rows.to_csv(out / "rows.csv.xz", index=False, compression=XZ)
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


def by_run(documents: pd.DataFrame) -> pd.DataFrame:
    """A row per document of a cell, a column per run and method: all read the same questions, and
    side by side their answers take a tenth of the room."""
    names = documents.run.astype(str) + "@" + documents.method.astype(str)
    place = [*CELL, "document", "answers"]
    documents = documents.assign(name=names, part=documents.part.astype(object).fillna(""))
    return documents.pivot(index=place, columns="name", values="right").astype("Int16")


def documents_of(run: Path) -> pd.DataFrame:
    """A row per cell and document of a run."""
    found = []
    for cell in read_cells(run / "eval"):
        facts = cell.facts | {"method": label(cell.facts)}
        own = {"nats": cell.nats.round(4), "targets": cell.tokens}
        own |= {"answers": cell.answers, "right": cell.right, "document": range(len(cell.nats))}
        found.append(pd.DataFrame({name: facts[name] for name in FACTS} | own))
    return pd.concat(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
