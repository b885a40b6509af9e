"""A context grown in three stages: L, then 8 L with YaRN by 8, then 32 L with YaRN by 32.

python scripts/sweep.py --config=configs/sweeps/stages.py --workdir=runs/stages

The later stages take 5% of the tokens each, and every stage is evaluated at all lengths. A stage
waits for the one before, so the sweep's folder is stated here: change FOLDER with --workdir. The
sweep took 16 minutes on one core beside a busy one. Expected bits per byte at 32 L, one seed: 3.52
with YaRN by 32 before training, 2.07 after it, and at L 1.86 before and 1.96 after.
"""

from posenc_jax.sweeping.jobs import name_of

FOLDER = "runs/stages"
L, STEPS = 128, 540


def get_config():
    stages = [{"recipe": "configs/rope.py", "steps": STEPS}]
    for times in (8, 32):
        further = {"recipe": "configs/finetune.py", "train_length": times * L}
        further |= {"extension.scale": float(times), "steps": STEPS // 18}
        stages.append(further | {"init_from": f"{FOLDER}/{name_of(stages[-1])}"})
    return {
        "grid": stages,
        "fields": {"valid_every": 30, "save_every": 30},
        "evaluation": {
            "lengths": ",".join(str(times * L) for times in (1, 8, 32)),
            "extensions": "none,yarn:8,yarn:32",
            "last": 32,
        },
    }
