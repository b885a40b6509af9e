"""The sweep of `make demo`: RoPE and ALiBi, a model of retrieval and a model of text each.

python scripts/sweep.py --config=configs/sweeps/demo.py --workdir=runs/demo --workers=2

About two minutes on two CPU cores; its results are not recorded.
"""

RETRIEVAL = {
    "evaluation.protocols": "answers,gap",
    "evaluation.documents": 160,
    "evaluation.windows": 1,
}
TEXT = {"evaluation.protocols": "same_token", "evaluation.windows": 3}


def of(name):
    retrieval = {"recipe": f"configs/variables.py:{name}"} | RETRIEVAL
    return [retrieval, {"recipe": f"configs/{name}.py"} | TEXT]


def get_config():
    return {
        "grid": [*of("rope"), *of("alibi")],
        "fields": {
            "train_length": 64,
            "model.layers": 2,
            "steps": 300,
            "warmup_steps": 30,
            "log_every": 10,
            "valid_every": 50,
            "save_every": 300,
            "valid_batches": 8,
            "wandb.mode": "disabled",
        },
        "evaluation": {
            "lengths": "64,128,256,512",
            "last": 16,
            "extensions": "none,pi,ntk,yarn",
            "tokens_per_call": 32_768,
        },
    }
