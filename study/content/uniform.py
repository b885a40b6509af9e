"""Positions that depend on content under another law: distances uniform, not log-uniform.

python scripts/sweep.py --config=study/content/uniform.py --workdir=runs/even --workers=2
python scripts/report.py runs/even --out=report

The encodings, steps and test of study/content/sweep.py, at the rates that it chose
(rows/sweep/choices.csv), five seeds. Here 0.87 of the test's answers are more than L
back, there 0.42 (protocol gap).
"""

from pathlib import Path

from study.content import sweep as content
from study.text import sweep as fair

RESULTS = Path(__file__).parent / "rows" / "sweep"


def get_config():
    jobs = [(f"ordered-{name}", f"configs/ordered.py:{name}", {}) for name in content.ENCODINGS]
    config = fair.at_rates_of(content.get_config(), RESULTS, jobs, seeds=5)
    return config | {
        "fields": config["fields"] | {"data.gaps": "within"},
        "evaluation": config["evaluation"] | {"extensions": "none"},
    }
