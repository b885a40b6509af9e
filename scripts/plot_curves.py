"""python scripts/plot_curves.py RUN[@METHOD[,METHOD...]] [RUN ...] --out=DIR

The curves of several evaluated runs in one picture per protocol: same_token.png, nonoverlap.png,
sliding.png and position.png in DIR. Of each run the methods named, or all of them; n-grams of
scripts/yardstick.py in grey:

  python scripts/plot_curves.py runs/rope@none,yarn:8 runs/alibi@none --out=pictures
  python scripts/plot_curves.py runs/rope runs/alibi --format=pdf --width=3.3
"""

import argparse
import sys
from pathlib import Path

from posenc_jax import terminal
from posenc_jax.evaluation import selection, yardsticks
from posenc_jax.plots import curves, style


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="an evaluated run")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="default: pictures")
    parser.add_argument("--evaluation", default="", help="default: that of held-out text")
    parser.add_argument("--format", choices=style.FORMATS, default="png", help="default: png")
    parser.add_argument("--width", type=float, help="inches: 3.3 for a column of a paper")
    options = parser.parse_args(argv[1:])

    def plot() -> None:
        with style.printed(style.Form(options.format, options.width)):
            cells = selection.comparable(selection.readable(options.runs, options.evaluation))
            folders = [selection.parse(run).run / "eval" for run in options.runs]
            counted = [row for folder in folders for row in yardsticks.read(folder)]
            drawn = curves.draw(cells, options.out, yardsticks=counted)
            terminal.say("\n".join(map(str, drawn)))

    return terminal.code_of(plot)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
