"""A fair zoo: ten encodings, each at rates tuned at L, five seeds, on targets worth ranking by.

python scripts/sweep.py --config=configs/sweeps/fair.py --workdir=runs/fair --workers=2
python scripts/yardstick.py runs/fair
python scripts/report.py runs/fair --out=report

Every scheme is tuned on a third split before its seeds run (docs/sweeps.md). Source code is
held out by package, so that no module stands beside its own package in training. Lengths begin at
L, so that the last K = 32 targets of 249 windows in 57 documents are scored, 7,968 in all. 85 runs
are trained, 45 of which choose (docs/results/fair/choices.csv), and 50 are evaluated: about 4 hours
on two CPU cores. docs/results/text.md has what they found.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from posenc_jax.sweeping.choosing import Rates, chosen
from posenc_jax.sweeping.grid import axis, product

ENCODINGS = "nope rope alibi t5 kerple_log fire sandwich hybrid_nope ssmax fox".split()
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "fair"


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in ENCODINGS])
    return {
        # Seeds vary slowest, so that a sweep that is cut short has every encoding.
        "grid": product(axis("seed", range(5)), recipes),
        "choose": Rates(),
        "fields": {"data.hold_out": "package", "data.choose_fraction": 0.1},
        "evaluation": {
            "multiples": "1,2,4,8",
            "last": 32,
            "windows": 6,
            "documents": 100,
            "protocols": "same_token,nonoverlap",
            "extensions": "none",
        },
    }


def at_chosen_rates(jobs: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """A sweep of the same data, splits and targets: encodings with fields of their own, at the
    rates that this one chose, three seeds."""
    rates = chosen(RESULTS)
    recipes = [{"recipe": f"configs/{name}.py"} | rates[name] | fields for name, fields in jobs]
    config = get_config()
    del config["choose"]
    return config | {"grid": product(axis("seed", range(3)), recipes)}
