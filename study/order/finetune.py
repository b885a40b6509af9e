"""Reach and order after fine-tuning: RoPE and FIRE of sweep.py, five seeds, for 2, 5 and 20% of
their steps at 8 L; RoPE also with YaRN, and with Randomized YaRN at L.

python scripts/sweep.py --config=study/order/finetune.py --workdir=runs/ordered_finetune
python scripts/report.py runs/ordered_finetune --out=report

The runs of sweep.py must be finished in runs/ordered. Tokens per step are the same, the learning
rate is a fifth; at 8 L the text is that of the oracles.
"""

from study.order import sweep as ordered

L = 64
AT_FAR = {
    "recipe": "configs/finetune.py",
    "train_length": ordered.FAR * L,
    "data.far": 1.0,
}
YARN = {"extension.name": "yarn", "extension.scale": float(ordered.FAR)}
PLAIN = {"extension.name": "none", "extension.scale": 1.0}
RANDOMIZED = {
    "recipe": "configs/randomized_yarn.py",
    "train_length": L,
    "encoding.inner_length": L,
    "data.far": float(ordered.FAR),
}


SHARES = {24: "2%", 60: "5%", 240: "20%"}  # of the 1,200 steps of pretraining
KINDS = [
    ("rope", "rope", AT_FAR | PLAIN),
    ("rope", "rope with yarn:8", AT_FAR | YARN),
    ("fire", "fire", AT_FAR | PLAIN),
    ("rope", "randomized yarn:8 at L", RANDOMIZED),
]


def get_config():
    evaluation = ordered.get_config()["evaluation"]
    return {
        "grid": [
            fields
            | {
                "seed": seed,
                "init_from": f"runs/ordered/ordered-{name}-s{seed}",
                "steps": steps,
                "label": f"{title}, {share} more steps",
            }
            for seed in range(5)
            for name, title, fields in KINDS
            for steps, share in SHARES.items()
        ],
        "fields": {"log_every": 20},
        "evaluation": evaluation | {"extensions": "none,yarn:8"},
    }
