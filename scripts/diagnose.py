"""python scripts/diagnose.py RUN[@METHOD[,METHOD...]][@LENGTH] [--documents=8] [--step=N]
    [--path=FILES]

Shows the effect of position inside a run, as CSV in RUN/eval/diagnose and plots in RUN/plots: the
rotary spectrum before and after each extension, with the turns of every pair within L; the bias
against distance; and, by position, the share of attention beyond L tokens, its share on token 0 and
its entropy. It says whether the model has an attention sink: a head that gives token 0 more than
0.3 of its attention, averaged over queries 33 to L.

The default is none,yarn at the length 8 L. An extension without a scale gets the length over L.
Memory grows with the square of the length, so give a pretrained model a LENGTH and text (--path).

--knockout instead asks a run on `variables` for the last of two settings while keys are hidden in
every layer: the older setting from the last one, a filler as far back from it, or every filler.
With the extension topk:k=32 a query sees its 32 highest scores alone.

  python scripts/diagnose.py runs/rope@none,ntk,yarn:8@1024
  python scripts/diagnose.py runs/smollm2@none@1024 --path='books/*.txt'
"""

import sys

from posenc_jax.runtime import backend, terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("run", metavar="RUN[@METHOD[,METHOD...]][@LENGTH]")
    parser.add_argument("--documents", type=int, default=8, help="rows to read; default: 8")
    parser.add_argument("--step", type=int, help="a checkpoint; default: the last one")
    parser.add_argument(
        "--path", default="", help="text files to read; default: the run's held-out documents"
    )
    parser.add_argument("--knockout", action="store_true", help="hide keys from queries")
    options = parser.parse_args(argv[1:])
    if options.documents < 1:
        parser.error("--documents must be at least 1")
    if options.knockout and (options.path or options.documents != parser.get_default("documents")):
        parser.error("--knockout reads the run's own text; --path and --documents have no effect")

    def body() -> None:
        backend.configure()
        from posenc_jax.report.diagnosis import diagnose, knock_out

        if options.knockout:
            paths = knock_out(options.run, options.step)
        else:
            paths = diagnose(options.run, options.documents, options.step, options.path)
        terminal.say("\n".join(map(str, paths)))

    return terminal.code_of(body)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
