"""python scripts/demo.py [--workdir=runs/demo] [--out=report/demo]

Trains a sinusoidal, a RoPE and an ALiBi model of 0.8M parameters at L = 64 on the standard
library's source, reads 8 L with every extension that fits, and leaves one page to look at. The same
command goes on where it was stopped. What `make demo` runs.
"""

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from posenc_jax import errors, terminal  # noqa: E402
from posenc_jax.report import figures, gather, page, table  # noqa: E402
from scripts import sweep  # noqa: E402

NEXT = """What to try next:
  {open}
  python train.py --config=configs/fire.py --workdir=runs/fire         # one run; any of configs/
  python eval_extrapolation.py --workdir=runs/fire --config.extensions=all
  python scripts/sweep.py --config=configs/sweeps/zoo.py --workdir=runs/zoo   # all, three seeds"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--workdir", default="runs/demo", help="default: runs/demo")
    parser.add_argument("--out", type=Path, default=Path("report/demo"), help="the page's folder")
    options, rest = parser.parse_known_args(argv[1:])
    begin = time.monotonic()
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    words = [f"--config={ROOT / 'configs/sweeps/demo.py'}", f"--workdir={options.workdir}"]
    code = sweep.main(["sweep.py", *words, f"--workers={min(3, cores)}", *rest])
    if code != errors.DONE:
        return code

    def body() -> None:
        data = gather.gather([Path(options.workdir)])
        path = page.write(data, options.out)
        figures.draw(data, options.out)
        minutes, seconds = divmod(int(time.monotonic() - begin), 60)
        terminal.say(f"\n{table.table(data)}\n")
        terminal.say(f"{minutes} min {seconds} s; the page: {path.resolve()}\n")
        terminal.say(NEXT.format(open=f"open {path} in a browser"))

    return terminal.code_of(body)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
