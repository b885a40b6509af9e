"""python scripts/plot_encodings.py [RUN ...] [--out=report/encodings] [--length=128] [--scale=8]

Pictures of the encodings: how far RoPE's scores reach, its wavelengths before and after each
extension, the biases of ALiBi, T5, Kerple, FIRE and Sandwich by head, and the similarity of the
vectors of additive encodings, the distances that extensions move, the windows and chunks of layers
that differ, and forget gates over a text. They are drawn untrained, and titles say which values are
random; a RUN replaces its scheme with what it learned, and its gates read held-out text. For a RUN
with an additive encoding also the shares of content and position in the scores and keys of its
first layer.
"""

import argparse
import sys
from pathlib import Path

from posenc_jax import backend, terminal


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("report/encodings"))
    parser.add_argument("--length", type=int, default=128, help="L; default: 128")
    parser.add_argument("--scale", type=float, default=8.0, help="of extensions; default: 8")
    parser.add_argument("--heads", type=int, default=8, help="of untrained encodings; default: 8")
    options = parser.parse_args(argv[1:])
    if options.length < 2 or options.scale < 1 or options.heads < 1:
        parser.error("--length must be at least 2, --scale and --heads at least 1")
    return terminal.code_of(lambda: draw(options))


def draw(options) -> None:
    backend.configure()
    from posenc_jax.encoding import Dims
    from posenc_jax.report.portraits import Portraits

    dims = Dims(options.heads, 64, 64 * options.heads, options.length)
    made = Portraits(dims, options.runs).draw(options.out, options.scale)
    terminal.say("\n".join(map(str, made)))


if __name__ == "__main__":
    sys.exit(terminal.program(main))
