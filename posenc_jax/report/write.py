"""Write the report of some runs, for `scripts/report.py` and `scripts/demo.py`."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from posenc_jax.plots import captions, style
from posenc_jax.report import gather, page, pictures, table, tables
from posenc_jax.runs.workdir import Workdir
from posenc_jax.terminal import counted, say, warn
from posenc_jax.tracking.report import Numbers, log_report


def report(
    runs: Sequence[Path],
    out: Path,
    evaluation: str = "",
    wandb: str = "",
    text: Sequence[Path] = (),
    form: style.Form = style.USUAL,
) -> Path:
    """Write OUT/index.html and a picture per protocol, print the table, and return the page's path.

    The picture of answers also shows bits of text, from the runs `text` if given.
    """
    data = gather.gather(runs, evaluation)
    for note in data.notes:
        warn(note)
    path = page.write(data, out)
    with style.printed(form):
        drawn = pictures.draw(data, out, gather.gather(text) if text else None)
    say(table.table(data))
    written = [*drawn, *([out / captions.FILE] if drawn else []), *tables.write(data, out)]
    say("\n".join(map(str, written)))
    config = Workdir(data.runs[0]["id"]).config() if wandb else None
    if config is not None and len(data.points):
        numbers = Numbers(data.points, _ranking(data), len(data.runs), data.notes)
        log_report(config, wandb, out, numbers, drawn)
    evaluated = sum(run["evaluated"] for run in data.runs)
    say(f"{path}: {counted(len(data.runs), 'run')}, {evaluated} of them evaluated")
    return path


def _ranking(data: gather.Gathered) -> list[list[Any]]:
    """Rows of all rankings, without intervals that are not finite."""
    return [
        [
            protocol,
            length,
            *row[:2],
            row.loss,
            row.behind,
            *(end if isfinite(end) else None for end in row.by_documents),
            row.verdict,
        ]
        for protocol, ranks in data.ranking.items()
        for length, rows in ranks.items()
        for row in rows
    ]
