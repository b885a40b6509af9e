"""python scripts/report.py RUNS [RUNS ...] --out=report

Writes a report on runs and sweeps, finished or not: OUT/index.html, a single file that needs no
network, and PNGs of each protocol against length or position, of gaps and of order. RUNS is the
folder of a sweep or of one run. Beside retrieval accuracy, if scored, stands the loss of the runs
--text, by default of RUNS; of a mixture that was evaluated on each of its texts, name the same
runs.
"""

import sys
from pathlib import Path

from posenc_jax.plots import style
from posenc_jax.report.page import report
from posenc_jax.runtime import terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of sweeps or runs")
    parser.add_argument("--out", type=Path, default=Path("report"), help="default: report")
    parser.add_argument(
        "--evaluation", default="", help="its name; default: the evaluation of held-out text"
    )
    parser.add_argument("--text", nargs="+", type=Path, default=(), help="runs evaluated on text")
    parser.add_argument("--format", choices=style.FORMATS, default="png", help="of figures")
    parser.add_argument(
        "--width", type=float, help="of figures, in inches; 3.3: a column of a paper"
    )
    options = parser.parse_args(argv[1:])
    form = style.Form(options.format, options.width)
    return terminal.code_of(
        lambda: report(options.runs, options.out, options.evaluation, options.text, form)
    )


if __name__ == "__main__":
    sys.exit(terminal.program(main))
