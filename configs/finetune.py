"""Fine-tuning for length: a trained RoPE with YaRN at 4 L, as in the YaRN paper.

python train.py --config=configs/finetune.py --workdir=runs/yarn4 --config.init_from=runs/rope

Model, encoding, text and tokenizer come from the run in init_from, whose L the formulas keep.
Fields set here or on the command line override them, such as --config.data.source=text
--config.data.path='books/*.txt'.

Expected with configs/rope.py after 200 steps at 4 L = 512: at 4 L a loss 0.230 nats per byte below
YaRN without fine-tuning [0.172, 0.287] (one seed).
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from configs import base


def get_config():
    config = base.get_config()
    for name in ("model", "encoding", "data"):
        config[name] = ConfigDict()  # that of the run in init_from
    config.extension.name, config.extension.scale = "yarn", 4.0
    config.train_length = placeholder(int)  # None: scale x L
    config.batch_size = placeholder(int)  # None: the same tokens per step as before
    config.learning_rate = placeholder(float)  # None: a fifth of the previous rate
    config.warmup_steps = 20
    config.steps = 200
    return config
