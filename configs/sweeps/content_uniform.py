"""Positions that depend on content under another law: distances uniform, not log-uniform.

python scripts/sweep.py --config=configs/sweeps/content_uniform.py --workdir=runs/even --workers=2
python scripts/report.py runs/even --out=report

The encodings, steps and test of configs/sweeps/content.py, at the rates that it chose
(docs/results/content/choices.csv), five seeds. Here 0.87 of the test's answers are more than L
back, there 0.42 (protocol gap).
"""

from configs.sweeps import content, fair


def get_config():
    results = fair.RESULTS.with_name("content")
    jobs = [(f"ordered-{name}", f"configs/ordered.py:{name}", {}) for name in content.ENCODINGS]
    config = fair.at_rates_of(content.get_config(), results, jobs, seeds=5)
    return config | {
        "fields": config["fields"] | {"data.gaps": "within"},
        "evaluation": config["evaluation"] | {"extensions": "none"},
    }
