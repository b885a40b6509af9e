"""The ladder on a small model of two texts, at rates tuned alike.

python scripts/sweep.py --config=study/tuning/small.py --workdir=runs/ladder --workers=2

run.sh has the other commands.

A base per seed is trained at L = 64 on source code (80%) and `variables` (20%). Every rung starts
from it with YaRN by 8 and trains on rows of 64 tokens whose positions jump up to 512, for a sixth
of the base's steps; those of LONG train on as many tokens in rows of 512 without jumps. Seed 0 runs
at every rate of RATES, the other seeds at the best of them by the loss at 8 L on a third split,
which rates.py writes; until then only seed 0 runs.
"""

from configs.ladder import RUNGS
from posenc_jax.sweeping.jobs import name_of
from study.tuning import rates

WORKDIR, SEEDS = "runs/ladder", range(5)
L, SCALE, STEPS = 64, 8, 300
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
LONG = {  # what `temperature` and `numbers` train
    "long_temperature": {},
    "long_numbers": {"encoding.frequencies": "trained"},
}
FACTOR = {"encoding.name": "ssmax", "encoding.bias": True, "encoding.each": "model"}


def bases() -> list[dict]:
    return [{"recipe": "configs/mixture.py:rope", "seed": seed} for seed in SEEDS]


def rung(name: str, seed: int, rate: float) -> dict:
    base = f"{WORKDIR}/{name_of(bases()[seed])}"
    own = {"recipe": f"configs/ladder.py:{name}"}
    if name in LONG:
        own = {"recipe": "configs/finetune.py", "trains": "none"} | FACTOR | LONG[name]
    return own | {
        "seed": seed,
        "learning_rate": rate,
        "init_from": base,
        "extension.scale": float(SCALE),
        "steps": STEPS,
        "warmup_steps": STEPS // 10,
        "label": name,
    }


def get_config():
    best = rates.best()
    rungs = [
        rung(name, seed, rate)
        for seed in SEEDS
        for name in (*RUNGS, *LONG)
        for rate in RATES
        if seed == 0 or best.get(name) == rate
    ]
    return {
        "grid": [*bases(), *rungs],
        "fields": {"log_every": 100, "data.choose_fraction": 0.1},
        "evaluation": {
            "data.source": "variables",
            "lengths": f"{L},{SCALE * L}",
            "protocols": "answers,gap",
            "extensions": f"none,yarn:{SCALE}",
            "last": 16,
            "tokens_per_call": 32_768,
        },
    }
