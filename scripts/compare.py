"""python scripts/compare.py A B [--protocol=same_token,nonoverlap]

Compares two evaluated curves over the same targets, paired by document, with 95% t-intervals over
documents. A and B are RUN[@METHOD][@LENGTH]: a run's folder; a method, which is none (the default),
an extension, an extension:scale, window or fresh; and one length (default: all common lengths).

  python scripts/compare.py runs/rope runs/alibi
  python scripts/compare.py runs/rope@yarn runs/rope@fresh
  python scripts/compare.py runs/rope@yarn:8@1024 runs/rope@none@128

The last one compares 1,024 tokens with YaRN to the last 128 of them without. --format=markdown or
latex prints the table for a note or a paper.
"""

import sys

from posenc_jax import display
from posenc_jax.evaluation.compare import compare, protocols_in
from posenc_jax.runtime import terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--protocol", default="", help="default: all of them")
    parser.add_argument(
        "--evaluation", default="", help="its name; default: the evaluation of held-out text"
    )
    parser.add_argument("--format", choices=display.FORMS, default="text", help="default: text")
    options = parser.parse_args(argv[1:])

    def show() -> None:
        names = protocols_in(options.protocol)
        a, b = options.a, options.b
        terminal.say(compare(a, b, names, options.evaluation, options.format))

    return terminal.code_of(show)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
