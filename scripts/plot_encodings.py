"""python scripts/plot_encodings.py [RUN ...] [--out=report/encodings] [--length=128] [--scale=8]

Plots the encodings: RoPE's wavelengths before and after each extension, every bias by head and
distance, and the distances that extensions remap. Encodings are untrained, and titles mark random
values; a RUN shows its trained encoding instead, and one with forget gates these over its text.
"""

import sys
from pathlib import Path

from posenc_jax.runtime import backend, terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("report/encodings"))
    parser.add_argument("--length", type=int, default=128, help="L; default: 128")
    parser.add_argument("--scale", type=float, default=8.0, help="scale of extensions; default: 8")
    parser.add_argument(
        "--heads", type=int, default=8, help="heads of untrained encodings; default: 8"
    )
    options = parser.parse_args(argv[1:])
    if options.length < 2 or options.scale < 1 or options.heads < 1:
        parser.error("--length must be at least 2, --scale and --heads at least 1")
    return terminal.code_of(lambda: draw(options))


def draw(options) -> None:
    backend.configure()
    from posenc_jax.encoding import Dims
    from posenc_jax.report.diagnosis import Portraits

    dims = Dims(options.heads, 64, 64 * options.heads, options.length)
    plots = Portraits(dims, options.runs).draw(options.out, options.scale)
    terminal.say("\n".join(map(str, plots)))


if __name__ == "__main__":
    sys.exit(terminal.program(main))
