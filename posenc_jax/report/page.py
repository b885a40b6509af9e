"""Write a report: the page, its summary, the pictures and their captions."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jinja2

from posenc_jax.evaluation import protocols
from posenc_jax.plots import style
from posenc_jax.report import overview, pictures, sections, tables
from posenc_jax.report.figures import Select
from posenc_jax.report.overview import Panel
from posenc_jax.report.ranking import Rankings, rankings
from posenc_jax.report.runs import ReportData, read_runs
from posenc_jax.runs.workdir import now
from posenc_jax.runtime.files import write_atomically
from posenc_jax.runtime.terminal import counted, say, warn

PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write_page(
    data: ReportData, ranks: Rankings, folder: Path, shown: Sequence[Panel] | None = None
) -> Path:
    """Write OUT/index.html, which opens with the panels `shown`, by default those of the data."""
    shown = overview.first(data, ranks, data, ranks) if shown is None else shown
    choices = overview.choices(shown)
    found, condition = overview.headline(shown)
    page = PAGES.get_template("page.html").render(
        data=data,
        notes=list(dict.fromkeys([*data.notes, *ranks.notes])),
        headline=found or "Length extrapolation",
        condition=condition or evaluated(data),
        measured=pictures.on_what(data, protocols.HEADLINE, "answers"),
        summary=f"{evaluated(data)}. Made {now()}: {' '.join(['python', *sys.argv])}",
        panels=[(panel, overview.charts(panel, shown)) for panel in shown],
        methods=Select("methods", "methods", {key: words for key, (words, _) in choices.items()}),
        verdicts=overview.verdicts,
        sections=sections.every(data, ranks),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "index.html", page)
    return folder / "index.html"


def evaluated(data: ReportData) -> str:
    """Counts of runs, for the page and the terminal."""
    done = sum(bool(run.cells) for run in data.runs)
    return f"{counted(len(data.runs), 'run')}, {done} of them evaluated"


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
    data = read_runs(runs, evaluation)
    ranks = rankings(data.runs)
    of_text, ranks_of_text = data, ranks
    if text:
        of_text = read_runs(text)
        ranks_of_text = rankings(of_text.runs)
        data = replace(data, notes=[*data.notes, *of_text.notes, *ranks_of_text.notes])
    shown = overview.first(data, ranks, of_text, ranks_of_text)
    for note in dict.fromkeys([*data.notes, *ranks.notes]):
        warn(note)
    path = write_page(data, ranks, out, shown)
    with style.printed(form):
        drawn = pictures.draw(data, ranks, out, shown=shown)
    say(tables.summary(data))
    written = [*drawn, *([out / style.CAPTIONS] if drawn else []), *tables.write(data, out)]
    say("\n".join(map(str, written)))
    say(f"{path}: {evaluated(data)}")
    return path
