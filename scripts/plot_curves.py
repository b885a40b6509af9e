"""python scripts/plot_curves.py RUN[@METHOD[,METHOD...]] [RUN ...] --out=DIR

The curves of several evaluated runs in one picture per protocol: same_token.png, nonoverlap.png,
sliding.png and position.png in DIR. Of each run the methods named, or all of them:

  python scripts/plot_curves.py runs/rope@none,yarn:8 runs/alibi@none --out=pictures
"""

import argparse
import sys
from pathlib import Path

from posenc_jax import terminal
from posenc_jax.evaluation import selection
from posenc_jax.plots import curves


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="an evaluated run")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="default: pictures")
    parser.add_argument("--evaluation", default="", help="default: that of held-out text")
    options = parser.parse_args(argv[1:])

    def plot() -> None:
        cells = selection.comparable(selection.readable(options.runs, options.evaluation))
        terminal.say("\n".join(map(str, curves.draw(cells, options.out))))

    return terminal.code_of(plot)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
