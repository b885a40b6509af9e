"""A rung of the ladder: what is trained when a run is extended, from one number to all weights.

python train.py --config=configs/ladder.py:temperature --workdir=runs/temperature \\
    --config.init_from=runs/rope

After the colon: temperature (a factor of the scores and its growth with the number of keys),
numbers (the same, and the frequencies, shared by all layers), layers (both for each layer), bias
(FIRE beside the run's own encoding), lora (rank 8) or all (every weight). YaRN by 2 and rows of L
tokens whose positions jump up to 2 L: the price of short rows, whatever the target length.

On configs/mixture.py:rope, YaRN by 8, 300 steps of any rung take 20 to 75 seconds of one CPU core.
Expected at 8 L there: lora and all 0.5 nats less than YaRN alone, bias 0.4 less, the rest none. An
encoding with an `inner` of its own takes jumps alone: lora and all.
"""

from ml_collections.config_dict import ConfigDict

from configs import finetune

FACTOR = "ssmax:bias=True:each="
RUNGS = {  # what is inside the jumps, and what of the model is trained
    "temperature": (FACTOR + "model", "none"),
    "numbers": (FACTOR + "model:frequencies=trained", "none"),
    "layers": (FACTOR + "layer:frequencies=trained:per=layer", "none"),
    "bias": ("plus:added=fire", "none"),
    "lora": (None, ""),
    "all": (None, "*"),
}


def get_config(rung):
    if rung not in RUNGS:
        raise ValueError(f"the ladder has {', '.join(RUNGS)}; got {rung!r}")
    config = finetune.get_config()
    inner, config.trains = RUNGS[rung]
    config.encoding = ConfigDict({"name": "randomized", "positions": "chunks"})
    if inner:
        config.encoding.inner = inner
    if rung == "lora":
        config.model = ConfigDict({"lora": 8})
    config.extension.scale = 2.0
    return config
