"""Fine-tuning for length: a trained RoPE goes on at 4 L with YaRN in place, as in its paper.

python train.py --config=configs/finetune.py --workdir=runs/yarn4 --config.init_from=runs/rope

Model, encoding, text and tokenizer are those of the run it starts from, and the formulas keep its
L. Fields set here or on the command line win, such as --config.data.source=text
--config.data.path='books/*.txt'.

Expected from configs/rope.py, 200 steps at 4 L = 512 and a fifth of the rate: at 4 L 0.230 nats per
byte [0.172, 0.287] below YaRN at evaluation alone (one seed, docs/results/finetuning.md).
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
    config.batch_size = placeholder(int)  # None: as many tokens in a step as before
    config.learning_rate = placeholder(float)  # None: a fifth of what it was
    config.warmup_steps = 20
    config.steps = 200
    return config
