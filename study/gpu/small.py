"""Text and order of one model at 20 tokens a parameter: eight encodings, two seeds, 10.7M
parameters, L = 256 bytes, four fifths books and one fifth `ordered`, evaluated to 32 L = 8,192.

The books are JSON lines with a field "text" in prepared/text:

  python scripts/sweep.py --config=study/gpu/small.py --workdir=runs/gpu/small --minutes=9

The sweep evaluates the answers; TEXT is the evaluation of the books.
"""

from posenc_jax.sweeping.grid import axis, product

NAMES = ("rope", "nope", "fire", "alibi", "fox", "t5", "kerple_log", "sinusoidal")
L, FAR, ROWS = 256, 8, 128
BOOKS = "jsonl:0.8:path=prepared/text/*.jsonl.gz"
TEXT = {"multiples": "0.25,0.5,1,2,4,8,16,32", "tokens_per_call": 262_144}


def get_config():
    recipes = axis("recipe", [f"configs/mixture.py:{name}" for name in NAMES])
    ordered = f"far={FAR}:variant=ordered:gaps=octaves:documents=40000"
    return {
        "grid": product(axis("seed", range(2)), recipes),
        "fields": {
            "model.layers": 6,
            "model.width": 384,
            "model.heads": 6,
            "model.dtype": "bfloat16",
            "train_length": L,
            "batch_size": ROWS,
            "steps": 6_530,  # of 32,768 tokens
            "learning_rate": 1e-3,
            "warmup_steps": 200,
            "data.mixture": f"{BOOKS},variables:0.2:{ordered}",
            "log_every": 100,
            "valid_every": 1_000,
            "save_every": 1_000,
            "keep": 1,
            "wandb.mode": "disabled",
        },
        "evaluation": {
            "data.source": "variables",
            "lengths": f"{L},{FAR * L}",
            "protocols": "found,last_of_two",
            "extensions": "none,yarn:8,self_extend,logn",
            "tokens_per_call": 262_144,
        },
    }
