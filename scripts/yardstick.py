"""python scripts/yardstick.py RUN [RUN ...] [--whole] [--evaluation=NAME]

Scores n-gram baselines on a run's targets: interpolated, p_k = (n + 5 p_{k-1}) / (N + 5), of 2 to 6
tokens, counted on the run's training rows (an epoch at most) and scored on the targets of its
same_token. Writes RUN/eval/yardsticks.csv; report.py, plot_curves.py and the next evaluation plot
them in grey. RUN may be the folder of a sweep: runs with the same targets and amount of training
text are then counted once.

  --whole   count the whole training text
"""

import sys
from pathlib import Path

from posenc_jax.runtime import terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of evaluated runs or sweeps")
    parser.add_argument("--whole", action="store_true", help="count the whole training text")
    parser.add_argument(
        "--evaluation", default="", help="its name; default: the evaluation of held-out text"
    )
    options = parser.parse_args(argv[1:])
    return terminal.code_of(lambda: count(options.runs, options.evaluation, options.whole))


def count(runs: list[Path], evaluation: str, whole: bool) -> None:
    from posenc_jax.evaluation import ngrams
    from posenc_jax.report.runs import runs_in

    for folder in ngrams.distinct_folders(runs_in(runs), evaluation):
        rows = ngrams.measure_ngrams(folder, evaluation, whole=whole)
        path = ngrams.write_yardsticks(folder / "eval", rows)
        bits = ", ".join(
            f"{row['order']}-gram {row['nll' if row['bpb'] is None else 'bpb']:.3f}" for row in rows
        )
        unit = "nats per token" if rows[0]["bpb"] is None else "bits per byte"
        targets = terminal.counted(rows[0]["tokens"], "target")
        read = terminal.counted(rows[0]["counted"], "token")
        terminal.say(f"{path}: {unit} of {targets} after {read}: {bits}")


if __name__ == "__main__":
    sys.exit(terminal.program(main))
