"""Who finds what stands far back? `variables`: trained at L = 64, asked up to 512 tokens back.

  python scripts/sweep.py --config=configs/sweeps/variables.py --workdir=runs/variables --workers=2

Twelve encodings and five seeds of 0.4M parameters, about a minute of training each on one core, and
two oracles that were trained at 512 on as many tokens. What is trained in an encoding has 16 times
the usual rate where it is added to logits: at less it could not move far enough in 600 steps.

Another law of gaps: --config.data.gaps=log. Reach without order: --config.data.variant=once.
"""

from posenc_jax.sweeping.grid import axis, chain, product

LEARNED_BIASES = ("kerple_log", "kerple_power", "t5")
OTHERS = ("rope", "nope", "alibi", "fire", "fox", "randomized", "sandwich", "sinusoidal", "xpos")
ORACLES = ("rope", "fire")
FAR = 8


def recipes(names, **fields):
    return [{"recipe": f"configs/{name}.py"} | fields for name in names]


def get_config():
    encodings = recipes(OTHERS) + recipes(LEARNED_BIASES, encoding_rate=16.0)
    oracles = recipes(ORACLES, train_length=64 * FAR, **{"batch_size": 32 // FAR, "data.far": 1.0})
    return {
        # Seeds vary slowest, so that a sweep that is cut short has every encoding.
        "grid": product(axis("seed", range(5)), chain(encodings, oracles)),
        "fields": {
            "train_length": 64,
            "model.layers": 2,
            "steps": 600,
            "data.source": "synthetic",
            "data.task": "variables",
            "data.answers_only": True,
            "data.far": float(FAR),
            "log_every": 100,
        },
        "evaluation": {
            "lengths": "64,128,256,512",
            "last": 16,
            "protocols": "answers,gap",
            "extensions": "all,yarn+logn",
            "tokens_per_call": 32_768,
        },
    }
