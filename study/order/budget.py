"""Order beyond L at five budgets: one trunk per encoding and seed, annealed at each budget.

python scripts/sweep.py --config=study/order/budget.py --workdir=runs/budget --workers=2

A trunk trains for 9,600 steps at a constant rate until its last fifth; the runs of 600 to 4,800
steps go on from it (docs/runs.md), so all budgets read the same rows. The rate of an encoding is
that of rates.py with the lowest sum of its losses at 600 and at 4,800 steps: the best at 600 that
also learns the task in 4,800.
"""

import json
import math
from pathlib import Path

from posenc_jax.sweeping.jobs import name_of
from posenc_jax.sweeping.rates import CHOSEN, read_choices
from study.order import rates

TRUNK, BUDGETS = 9_600, (600, 1_200, 2_400, 4_800)
SEEDS = {"rope": 5, "nope": 5, "fire": 5, "fox": 5, "alibi": 3, "t5": 3, "cope": 3}
CHOICES = Path(__file__).parent / "rows" / "rates"
WORKDIR = "runs/budget"
ROTARY = (
    "none,yarn:8,ntk_by_parts:8,pi:8,dynamic_yarn,dca,logn,self_extend:window=4,"
    "self_extend:window=8,self_extend:window=16"
)
EVALUATION = {
    "lengths": f"{rates.L},{rates.FAR * rates.L}",
    "protocols": "found,last_of_two",
    "extensions": ROTARY,
    "window": False,
    "tokens_per_call": 32_768,
}


def rates_of(fields: dict, choices: Path) -> dict[str, float]:
    """The rates of a scheme for all budgets."""
    schemes = {name_of({"steps": steps} | fields) for steps in rates.TUNED}
    losses: dict[tuple[float, float], list[float]] = {}
    for row in read_choices(choices):
        if row["scheme"] in schemes and not math.isnan(row["choose_loss"]):
            point = row["learning_rate"], row["encoding_rate"]
            losses.setdefault(point, []).append(row["choose_loss"])
    both = {point: own for point, own in losses.items() if len(own) == len(schemes)}
    best = min(both, key=lambda point: sum(both[point]))
    return dict(zip(CHOSEN, (json.loads(f"{rate:g}") for rate in best), strict=True))


def grid(schemes: dict[str, dict], seeds: dict[str, int], choices: Path, workdir: str) -> list:
    """A trunk and four shorter runs that go on from it, for each scheme and seed."""
    found = []
    for seed in range(max(seeds.values())):
        for name in (name for name in seeds if seed < seeds[name]):
            common = schemes[name] | {"seed": seed, "steps": TRUNK}
            trunk = common | rates_of(schemes[name], choices)
            anneal = {"anneal": f"{workdir}/{name_of(trunk)}"}
            found += [trunk, *(trunk | anneal | {"steps": steps} for steps in BUDGETS)]
    return found


def get_config():
    return {
        "grid": grid(rates.SCHEMES, SEEDS, CHOICES, WORKDIR),
        # An interruption saves at other steps too.
        "fields": rates.FIELDS | {"keep": 2 * TRUNK // rates.FIELDS["save_every"]},
        "evaluation": EVALUATION,
    }
