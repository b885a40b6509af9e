"""python scripts/plot_curves.py RUN [RUN ...] --out=curves.png

Perplexity against length of several evaluated runs in one picture.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from posenc_jax.evaluation import picture  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="an evaluated run")
    parser.add_argument("--out", type=Path, default=Path("curves.png"))
    options = parser.parse_args()
    missing = [str(run) for run in options.runs if not (run / "eval" / "curves.jsonl").is_file()]
    if missing:
        parser.error(f"not evaluated yet: {', '.join(missing)}; run eval_extrapolation.py first")
    rows = [
        json.loads(line)
        for run in options.runs
        for line in (run / "eval" / "curves.jsonl").read_text().splitlines()
    ]
    if len({row["token_hash"] for row in rows}) > 1:
        parser.error("these runs were evaluated on different targets and cannot share a picture")
    picture.nonoverlap(rows, options.out)
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
