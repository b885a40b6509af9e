"""Write a report: the page, its summary, the pictures and their captions."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from posenc_jax.evaluation import protocols
from posenc_jax.plots import style
from posenc_jax.plots.answers import by_gap
from posenc_jax.report import answers, overview, sections, table
from posenc_jax.report.figures import Select
from posenc_jax.report.overview import Panel
from posenc_jax.report.ranking import Rankings, rankings
from posenc_jax.report.runs import ReportData, read_runs
from posenc_jax.runs.workdir import now
from posenc_jax.runtime.files import write_atomically
from posenc_jax.runtime.terminal import counted, say, warn

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ORDER = "found_and_order"  # the name of a picture
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
        measured=on_what(data, protocols.HEADLINE, "answers"),
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


def draw_pictures(
    data: ReportData, ranks: Rankings, folder: Path, shown: Sequence[Panel]
) -> list[Path]:
    """Draw a picture for every protocol, that of answers with all panels `shown`; return the
    files."""
    drawn: dict[str, Figure | None] = dict.fromkeys((*protocols.against_length(), "gap", ORDER))
    for name in protocols.against_length():
        own = overview.panels([(name, data, ranks)])
        drawn[name] = overview.picture(shown if own and name == "answers" else own)
    results = answers.collect(data)
    if results is not None and not results.gaps.empty:
        values, names, parts = answers.grid(results)
        drawn["gap"] = by_gap(values, names, parts, results.trained, answers.claim(results))
    if (ordered := answers.ordered(data)) is not None:
        drawn[ORDER] = answers.picture_of_order(*ordered)
    captions_of = {}
    for name, figure in drawn.items():
        path = folder / f"{name}.png"
        style.formed(path).unlink(missing_ok=True)  # left by an earlier report
        if figure is not None:
            captions_of[style.save(figure, path)] = _caption(data, name)
    style.write_captions(folder / style.CAPTIONS, captions_of)
    return list(captions_of)


def _caption(data: ReportData, name: str) -> str:
    """Caption: content, data and meaning of the bands."""
    if name == ORDER:
        return (
            f"{name}: found is the share of names set once, more than L tokens back, whose value "
            "is answered, freed of guesses; order the share of names set twice that are answered "
            "with the last value, of the pairs held (0.5 without order). Means over seeds. Data: "
            f"{on_what(data, 'found')} {style.unpaired('seeds')}"
        )
    words = f"{name}: {protocols.find(name).title}"
    if name == "gap":
        return f"{words}; means over seeds. Data: {on_what(data, name)}"
    if name == "answers":
        words += ", relative to the ceiling, beside the loss of text"
    units = style.unpaired("seeds, or documents where there are fewer than three seeds")
    return (
        f"{words}; means over seeds, at most {overview.MOST_LINES} lines from best to worst. "
        f"Data: {on_what(data, name)} {units}"
    )


MOST = 4  # names in a list, before "and 3 more"


def on_what(data: ReportData, *scored: str) -> str:
    """L, size, data, targets of the protocols `scored`, and seeds of all evaluated runs."""
    runs = [run for run in data.runs if run.cells]
    if not runs:
        return ""
    shown = data.points[data.points.protocol.isin(scored)]
    longest = shown.sort_values("length").groupby(["id", "protocol"], sort=False).counts.last()
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.group, set()).add(run.seed)
    sizes = {(run.config.model.layers, run.config.model.width): None for run in runs}
    steps = sorted({run.config.steps for run in runs if not run.is_adopted})
    facts = [
        "L = " + _list(f"{length:,}" for length in sorted({run.trained for run in runs})),
        _list(f"{counted(layers, 'layer')} of width {width}" for layers, width in sizes),
        *([_list(counted(n, "step") for n in steps)] if steps else []),
        _list(counted(n, "seed") for n in sorted({len(s) for s in seeds.values()})) + " a group",
        "trained on "
        + _list(dict.fromkeys(run.data.partition(": ")[2] or "unknown" for run in runs)),
        *(["scored: " + _list(longest.unique())] if len(longest) else []),
    ]
    return f"{counted(len(runs), 'run')}; {'; '.join(facts)}."


def _list(words: Iterable[str]) -> str:
    """Words joined as "one, two and three"; of many the first few."""
    names = list(words)
    if len(names) > MOST + 1:
        names = [*names[:MOST], f"{len(names) - MOST} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


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
        drawn = draw_pictures(data, ranks, out, shown)
    say(table.table(data))
    written = [*drawn, *([out / style.CAPTIONS] if drawn else []), *table.write(data, out)]
    say("\n".join(map(str, written)))
    say(f"{path}: {evaluated(data)}")
    return path
