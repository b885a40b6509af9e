"""python scripts/report.py RUNS [RUNS ...] --out=report

One page about runs and sweeps, finished or not: OUT/index.html, which holds everything it shows and
asks no network for anything; and its main figure for each protocol as a PNG. RUNS is the folder of
a sweep or of one run. In wandb it is one run, `report`, of the group of the first one.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from posenc_jax import terminal  # noqa: E402
from posenc_jax.report import figures, gather, page, table, wandb_report  # noqa: E402
from posenc_jax.runs.workdir import Workdir  # noqa: E402


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("runs", nargs="+", type=Path, help="folders of sweeps or runs")
    parser.add_argument("--out", type=Path, default=Path("report"), help="default: report")
    modes = ("auto", "online", "offline", "disabled")
    parser.add_argument("--wandb", choices=modes, default="", help="default: that of the runs")
    parser.add_argument("--evaluation", default="", help="default: that of held-out text")
    options = parser.parse_args(argv[1:])

    def body() -> None:
        data = gather.gather(options.runs, options.evaluation)
        for note in data.notes:
            terminal.warn(note)
        path = page.write(data, options.out)
        pictures = figures.draw(data, options.out)
        terminal.say(table.table(data))
        done = sum(run["evaluated"] for run in data.runs)
        terminal.say("\n".join(map(str, pictures)))
        config = Workdir(data.runs[0]["id"]).config()
        if config is not None and "wandb" in config and len(data.points):
            wandb_report.log_report(config, options.wandb, options.out, data, pictures)
        terminal.say(f"{path}: {len(data.runs)} runs, {done} of them evaluated")

    return terminal.code_of(body)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
