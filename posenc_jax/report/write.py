"""Write the report of some runs, for `scripts/report.py` and `scripts/demo.py`."""

from collections.abc import Sequence
from pathlib import Path

from posenc_jax.plots import captions, style
from posenc_jax.report import gather, page, pictures, table, tables
from posenc_jax.terminal import counted, say, warn


def report(
    runs: Sequence[Path],
    out: Path,
    evaluation: str = "",
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
    evaluated = sum(run["evaluated"] for run in data.runs)
    say(f"{path}: {counted(len(data.runs), 'run')}, {evaluated} of them evaluated")
    return path
