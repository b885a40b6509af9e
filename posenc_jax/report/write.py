"""Write the report of some runs, for `scripts/report.py` and `scripts/demo.py`."""

from collections.abc import Sequence
from pathlib import Path

from posenc_jax.plots import captions, style
from posenc_jax.report import gather, page, pictures, table, tables, wandb_report
from posenc_jax.runs.workdir import Workdir
from posenc_jax.terminal import counted, say, warn


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
        wandb_report.log_report(config, wandb, out, data, drawn)
    evaluated = sum(run["evaluated"] for run in data.runs)
    say(f"{path}: {counted(len(data.runs), 'run')}, {evaluated} of them evaluated")
    return path
