"""python scripts/plot_curves.py RUN[@METHOD[,METHOD...]] [RUN ...] --out=DIR

Plots the curves of several evaluated runs, with one plot per protocol in DIR, such as
same_token.png. Each run has the named methods, or all of them; runs that differ in the seed alone
are one line, their mean:

  python scripts/plot_curves.py runs/rope@none,yarn:8 runs/alibi@none --out=pictures
  python scripts/plot_curves.py runs/rope runs/alibi --format=pdf --width=3.3
"""

import sys
from pathlib import Path

from posenc_jax.evaluation import compare
from posenc_jax.evaluation.cells import label
from posenc_jax.plots import style
from posenc_jax.report import pictures
from posenc_jax.report.ranking import rankings
from posenc_jax.report.runs import read_runs
from posenc_jax.runtime import terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="an evaluated run")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="default: pictures")
    parser.add_argument(
        "--evaluation", default="", help="its name; default: the evaluation of held-out text"
    )
    parser.add_argument("--format", choices=style.FORMATS, default="png", help="default: png")
    parser.add_argument("--width", type=float, help="in inches; 3.3: a column of a paper")
    options = parser.parse_args(argv[1:])

    def plot() -> None:
        with style.printed(style.Form(options.format, options.width)):
            cells = compare.readable(options.runs, options.evaluation)
            compare.check_comparable(cells)
            wanted: dict[Path, set[tuple[str, int]]] = {}
            for facts in (cell.facts for cell in cells):
                own = wanted.setdefault(Path(facts["run"]).resolve(), set())
                own.add((label(facts), facts["length"]))
            data = read_runs(list(wanted), options.evaluation).only(wanted)
            for note in data.notes:
                terminal.warn(note)
            name = cells[0].facts["evaluation"]
            drawn = pictures.draw(data, rankings(data.runs), options.out, evaluation=name)
            terminal.say("\n".join(map(str, drawn)))

    return terminal.code_of(plot)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
