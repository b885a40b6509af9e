"""The page: one self-contained file that needs no network."""

import sys
from html import escape
from pathlib import Path

from posenc_jax.files import write_atomically
from posenc_jax.report import sections, summary
from posenc_jax.report.elements import tag
from posenc_jax.report.gather import Gathered
from posenc_jax.runs.workdir import now
from posenc_jax.terminal import counted

TEMPLATE = Path(__file__).with_name("page.html")


def write(data: Gathered, folder: Path) -> Path:
    evaluated = sum(run["evaluated"] for run in data.runs)
    encodings, seeds = (len({run[name] for run in data.runs}) for name in ("encoding", "seed"))
    summary_line = (
        f"{counted(len(data.runs), 'run')}, {evaluated} of them evaluated; encodings: {encodings}, "
        f"seeds: {seeds}. Made {now()}: {' '.join(['python', *sys.argv])}"
    )
    notes = tag("ul", *(tag("li", escape(note)) for note in data.notes), class_="notes")
    lead = [tag("p", escape(sentence), class_="lead") for sentence in summary.sentences(data)]
    parts = [*lead, tag("p", escape(summary_line)), notes if data.notes else ""]
    parts += [section.html() for section in sections.every(data)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    page = TEMPLATE.read_text(encoding="utf-8").replace("<!-- sections -->", "\n".join(parts))
    write_atomically(path, page)
    return path
