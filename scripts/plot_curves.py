"""python scripts/plot_curves.py RUN[:METHOD,METHOD] [RUN ...] --out=DIR

The curves of several evaluated runs in one picture per protocol: same_token.png, nonoverlap.png,
sliding.png and position.png in DIR. Of each run those methods that are named, else all of them:

  python scripts/plot_curves.py runs/rope:none,yarn:8 runs/alibi:none --out=pictures
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from posenc_jax import errors, terminal  # noqa: E402
from posenc_jax.evaluation import records  # noqa: E402
from posenc_jax.evaluation.records import Measured  # noqa: E402
from posenc_jax.evaluation.table import apart, label  # noqa: E402
from posenc_jax.plots import curves  # noqa: E402
from posenc_jax.runs.workdir import Workdir  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="an evaluated run")
    parser.add_argument("--out", type=Path, default=Path("pictures"))
    parser.add_argument(
        "--evaluation", default="", help="by its name; default: that of held-out text"
    )
    options = parser.parse_args()

    def plot() -> None:
        cells = together(readable(options.runs, options.evaluation))
        terminal.say("\n".join(map(str, curves.draw(cells, options.out))))

    return terminal.code_of(plot)


def readable(runs: list[str], evaluation: str) -> list[list[Measured]]:
    """What is there; a run that cannot be read is said and left out."""
    found, wrong = [], []
    for words in runs:
        try:
            found.append(select(words, evaluation))
        except errors.Stop as error:
            wrong.append(error)
    if not found:
        raise wrong[0]
    for error in wrong:
        terminal.warn(f"left out: {error}")
    return found


def select(words: str, evaluation: str = "") -> list[Measured]:
    folder, rest = apart(words, ":")
    methods = ":".join(rest)  # of which each may have a scale
    Workdir(folder).checked_config()
    cells = records.of_evaluation(records.read(Path(folder) / "eval"), evaluation)
    last = max(cell.facts["step"] for cell in cells)
    wanted = methods.split(",")
    chosen = []
    for cell in cells:
        if cell.facts["step"] == last and (not methods or label(cell.facts) in wanted):
            chosen.append(cell._replace(facts=cell.facts | {"run": folder}))
    if not chosen:
        names = sorted({label(cell.facts) for cell in cells})
        raise errors.DataError(f"{folder} has none of {methods}; it has {', '.join(names)}")
    return chosen


def together(runs: list[list[Measured]]) -> list[Measured]:
    """All of them, if they were scored on the same targets; runs are called by what tells them
    apart."""
    cells = [cell for run in runs for cell in run]
    for protocol in {cell.facts["protocol"] for cell in cells}:
        chosen = [c.facts for c in cells if c.facts["protocol"] == protocol]
        scored = {(f["token_hash"], f["stride"], f["last"]) for f in chosen}
        if len(scored) > 1:
            raise errors.DataError(
                f"these runs were evaluated on different targets ({protocol}) and cannot share a "
                "picture"
            )
    names = {cell.facts["run"]: Path(cell.facts["run"]).resolve().name for cell in cells}
    if len(set(names.values())) == len(names):
        return [c._replace(facts=c.facts | {"run": names[c.facts["run"]]}) for c in cells]
    return cells


if __name__ == "__main__":
    sys.exit(main())
