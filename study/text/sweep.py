"""The fair zoo: ten encodings, each at rates tuned at L, five seeds.

python scripts/sweep.py --config=study/text/sweep.py --workdir=runs/fair --workers=2
python scripts/report.py runs/fair --out=report

Every scheme is tuned on a third split before its seeds run (docs/sweeps.md). Source code is held
out by package, so that held-out modules share no package with training. Lengths begin at L, so that
the last K = 32 targets of 249 windows in 57 documents are scored, 7,968 in all. Of 85 training runs
45 are for tuning (rows/sweep/choices.csv); 50 are evaluated. About 4 hours on two CPU cores.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from posenc_jax.sweeping.grid import axis, product
from posenc_jax.sweeping.rates import Rates, chosen

ENCODINGS = "nope rope alibi t5 kerple_log fire sandwich hybrid_nope ssmax fox".split()
RESULTS = Path(__file__).parent / "rows" / "sweep"


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in ENCODINGS])
    return {
        # Seeds vary slowest, so that an interrupted sweep has every encoding.
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
    """Sweep of encodings with given fields at this sweep's rates, on its data, three seeds."""
    recipes = [(name, f"configs/{name}.py", fields) for name, fields in jobs]
    return at_rates_of(get_config(), RESULTS, recipes, seeds=3)


def at_rates_of(
    tuned: dict[str, Any],
    results: Path,
    jobs: Iterable[tuple[str, str, dict[str, Any]]],
    seeds: int,
) -> dict[str, Any]:
    """A tuned sweep of other jobs (scheme, recipe, fields), at the rates it chose."""
    rates = chosen(results)
    recipes = [{"recipe": recipe} | rates[scheme] | fields for scheme, recipe, fields in jobs]
    config = {name: value for name, value in tuned.items() if name != "choose"}
    return config | {"grid": product(axis("seed", range(seeds)), recipes)}
