"""python scripts/demo.py [--workdir=runs/demo] [--out=report/demo]

Trains RoPE and ALiBi on a retrieval task and on the standard library's source, all at L = 64.
Evaluates them up to 8 L, RoPE also with PI, NTK and YaRN (configs/sweeps/demo.py), and writes a
report. The same command resumes. --config.FIELD=VALUE sets a field in every run. `make
demo` runs it.
"""

import sys
import time
from pathlib import Path

from posenc_jax.registry import ROOT
from posenc_jax.report.page import report
from posenc_jax.runtime import errors, terminal
from posenc_jax.sweeping.run import sweep

NEXT = """
{minutes} min {seconds} s; the report: {page}

What to try next:
  open {page} in a browser
  python train.py --config=configs/fire.py --workdir=runs/fire         # one run; any of configs/
  python eval_extrapolation.py --workdir=runs/fire --config.extensions=all
  python scripts/sweep.py --config=configs/sweeps/zoo.py --workdir=runs/zoo   # all, three seeds"""


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument(
        "--workdir", type=Path, default=Path("runs/demo"), help="folder of the sweep"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("report/demo"), help="folder of the report"
    )
    options, words = parser.parse_known_args(argv[1:])
    return terminal.code_of(lambda: demo(options.workdir, options.out, words))


def demo(workdir: Path, out: Path, words: list[str]) -> int:
    begin = time.monotonic()
    code = sweep(str(ROOT / "configs/sweeps/demo.py"), workdir, words, workers=3)
    if code == errors.DONE:
        page = report([workdir], out).resolve()
        minutes, seconds = divmod(int(time.monotonic() - begin), 60)
        terminal.say(NEXT.format(minutes=minutes, seconds=seconds, page=page))
    return code


if __name__ == "__main__":
    sys.exit(terminal.program(main))
