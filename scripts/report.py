"""python scripts/report.py RUNS [RUNS ...] --out=report

One page about runs and sweeps, finished or not: OUT/index.html, complete in one file that loads
nothing from the network, and its main figure for each protocol as a PNG. RUNS is the folder of a
sweep or of one run. Where answers were scored, their picture shows bits of text beside them: those
of the runs --text, which may be the same ones, trained on a mixture. With --wandb the report is one
run of wandb, `report`, in the group of the first run.
"""

import argparse
import sys
from pathlib import Path

from posenc_jax import terminal
from posenc_jax.plots import style
from posenc_jax.report.write import report


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("runs", nargs="+", type=Path, help="folders of sweeps or runs")
    parser.add_argument("--out", type=Path, default=Path("report"), help="default: report")
    modes = ("online", "offline", "auto")
    parser.add_argument("--wandb", choices=modes, default="", help="default: no run of wandb")
    parser.add_argument("--evaluation", default="", help="default: that of held-out text")
    parser.add_argument("--text", nargs="+", type=Path, default=(), help="runs that read text")
    parser.add_argument("--format", choices=style.FORMATS, default="png", help="of pictures")
    parser.add_argument("--width", type=float, help="of pictures, in inches; 3.3: a paper's column")
    given = parser.parse_args(argv[1:])
    form = style.Form(given.format, given.width)
    return terminal.code_of(
        lambda: report(given.runs, given.out, given.evaluation, given.wandb, given.text, form)
    )


if __name__ == "__main__":
    sys.exit(terminal.program(main))
