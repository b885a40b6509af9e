"""Write a report: the page, its summary, the pictures and their captions."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import FEWEST_SEEDS
from posenc_jax.plots import curves, style
from posenc_jax.report import answers, figures, sections, table
from posenc_jax.report.ranking import Rank, Rankings, Tables, rankings
from posenc_jax.report.runs import ReportData, Run, read_runs
from posenc_jax.runs.workdir import now
from posenc_jax.runtime.files import inert, write_atomically
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


def write_page(data: ReportData, ranks: Rankings, folder: Path) -> Path:
    encodings, seeds = ({run.encoding for run in data.runs}, {run.seed for run in data.runs})
    summary = (
        f"{evaluated(data)}; encodings: {len(encodings)}, seeds: {len(seeds)}. "
        f"Made {now()}: {' '.join(['python', *sys.argv])}"
    )
    page = PAGES.get_template("page.html").render(
        data=data,
        inert=inert,
        notes=[*data.notes, *ranks.notes],
        sentences=sentences(data, ranks),
        summary=summary,
        sections=sections.every(data, ranks),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "index.html", page)
    return folder / "index.html"


def evaluated(data: ReportData) -> str:
    """Counts of runs, for the page and the terminal."""
    done = sum(bool(run.cells) for run in data.runs)
    return f"{counted(len(data.runs), 'run')}, {done} of them evaluated"


def draw_pictures(data: ReportData, folder: Path, text: ReportData | None = None) -> list[Path]:
    """Draw a picture for every protocol, answers beside `text`; return the files."""
    drawn: dict[str, Figure | None] = {"answers": None, "gap": None, ORDER: None}
    drawn |= answers.pictures(data, text)
    if (ordered := answers.ordered(data)) is not None:
        drawn[ORDER] = answers.picture_of_order(*ordered)
    drawn |= {p: _picture(data, p) for p in protocols.against_length() if p not in drawn}
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
    value = curves.VALUES[figures.value_of(name)]
    words = f"{protocols.find(name).title}. {value.capitalize()} against length, without extensions"
    if name in ("answers", "gap"):
        words = (
            "retrieval accuracy. The map shows accuracy by distance to the answer in tokens; the "
            "lines show accuracy against context, relative to the ceiling, for at most "
            f"{answers.MOST_LINES} methods from best to worst"
        )
    bands = "" if name == "gap" else f" {style.unpaired('seeds')}"
    return f"{name}: {words}; means over seeds. Data: {on_what(data, name)}{bands}"


def _picture(data: ReportData, protocol: str) -> "Figure | None":
    """Chart of all lines on the left; on the right a closer view of those near the best."""
    value = figures.value_of(protocol)
    lines = figures.against_length(data, protocol, value)
    if not lines:
        return None
    points = data.points[data.points.protocol == protocol]
    closer = curves.near(lines) if value == "bpb" else None
    views = (None,) if closer is None else (None, closer)
    return curves.chart(
        lines,
        y=curves.VALUES[value],
        views=views,
        title=f"{protocol}: {protocols.find(protocol).title}\n{figures.counts_in_words(points)}",
        size=(6 * len(views) + 2, 5),
        **figures.tokens_axis(points),
    )


MOST = 4  # names in a list, before "and 3 more"
NAMED = 3  # entries behind the best one: the nearest and the last


def sentences(data: ReportData, ranks: Rankings) -> list[str]:
    """Results, then the data they are from; empty where nothing has been evaluated."""
    results = [
        sentence
        for sentence in (_answered(data, ranks.extended), _ranked(ranks.extended))
        if sentence
    ]
    if not results:
        return []
    return [" ".join(results), on_what(data, protocols.HEADLINE, "answers")]


def _answered(data: ReportData, tables: Tables) -> str:
    results = answers.collect(data)
    if results is None:
        return ""
    best = results.best
    oracles = results.oracles
    entries = [pair for pair in best if pair[0] not in oracles and pair[1] != "window"]
    plain = [pair for pair in entries if pair[1] == "none"]
    if not entries or not plain:
        return ""
    words = [f"{answers.legend_entry(results, *entries[0])} {best[entries[0]]:.2f}"]
    if plain[-1] != entries[0]:
        ranks = tables.get("answers", {}).get(results.longest, [])
        behind = [f", {_behind(rank)}" for rank in ranks[1:] if rank[:2] == plain[-1]]
        words.append(
            f"{answers.legend_entry(results, *plain[-1])} {best[plain[-1]]:.2f}{''.join(behind)}"
        )
    floors = [best[p] for p in best if p[1] == "window" and p[0] not in oracles]
    if floors:
        words.append(f"a window of the last {results.trained:,} tokens at most {max(floors):.2f}")
    return f"Retrieval accuracy up to {results.longest:,} tokens back: {_list(words)}."


def _ranked(tables: Tables) -> str:
    """Sentence on the ranking of text at the longest length."""
    by_length = tables.get(protocols.HEADLINE)
    if not by_length:
        return ""
    length = max(by_length)
    best, *others = by_length[length]
    named = others if len(others) <= NAMED else [*others[: NAMED - 1], others[-1]]
    words = [
        f"At {length:,} tokens {_name(best)} has the lowest loss, {best.loss:.3f} bits per byte",
        *(
            f"{_name(rank)} {'ties with it,' if rank.verdict == 'tie' else 'is'} {_behind(rank)}"
            for rank in named
        ),
    ]
    few = {rank.shared for rank in named if rank.by_seeds is None}
    if few:
        seeds = "one seed does" if few == {1} else f"fewer than {FEWEST_SEEDS} common seeds do"
        words.append(f"{seeds} not rank training")
    return "; ".join(words) + "."


def _behind(rank: Rank) -> str:
    """Difference of an entry to the best, with the interval that decides its verdict."""
    if not rank.units.enough:
        return f"{rank.behind:.3f} behind on {rank.units}"
    (low, high), over = rank.by_documents, str(rank.units)
    if rank.by_seeds is not None and (rank.verdict != "tie" or rank.by_seeds[0] < low):
        (low, high), over = rank.by_seeds, "seeds"  # for a tie, the interval that contains zero
    open_ = rank.verdict == "open" and rank.by_seeds is not None
    among = f", open among {counted(rank.comparisons, 'comparison')}" if open_ else ""
    return f"{rank.behind:.3f} behind (95%: {low:.3f} to {high:.3f} over {over}{among})"


def _name(rank: Rank) -> str:
    return figures.with_method(rank.group, rank.method)


def on_what(data: ReportData, *scored: str) -> str:
    """L, size, data, targets of the protocols `scored`, and seeds of all evaluated runs."""
    runs = [run for run in data.runs if run.cells]
    shown = data.points[data.points.protocol.isin(scored)]
    longest = shown.sort_values("length").groupby(["id", "protocol"], sort=False).counts.last()
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.group, set()).add(run.seed)
    facts = [
        "L = " + " and ".join(f"{length:,}" for length in sorted({run.trained for run in runs})),
        _list(dict.fromkeys(map(_size, runs))),
        _each(sorted({run.config.steps for run in runs}), "step"),
        _each(sorted({len(of_group) for of_group in seeds.values()}), "seed") + " a group",
        "trained on "
        + _list(dict.fromkeys((run.data or "unknown").partition(": ")[2] for run in runs)),
        "scored: " + _list(longest.unique()),
    ]
    return f"{counted(len(runs), 'run')}; {'; '.join(facts)}."


def _size(run: Run) -> str:
    model = run.config.model
    return f"{counted(model.layers, 'layer')} of width {model.width}"


def _each(values: Sequence[int], noun: str) -> str:
    *first, last = values
    return "".join(f"{value:,} and " for value in first) + counted(last, noun)


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
    for note in (*data.notes, *ranks.notes):
        warn(note)
    path = write_page(data, ranks, out)
    with style.printed(form):
        drawn = draw_pictures(data, out, read_runs(text) if text else None)
    say(table.table(data))
    written = [*drawn, *([out / style.CAPTIONS] if drawn else []), *table.write(data, out)]
    say("\n".join(map(str, written)))
    say(f"{path}: {evaluated(data)}")
    return path
