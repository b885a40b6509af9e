"""Fine-tuning for length: a trained RoPE goes on at 4 L with YaRN in place, as in its paper.

python train.py --config=configs/finetune.py --workdir=runs/yarn4 --config.init_from=runs/rope

Model, encoding, text and tokenizer are those of the run it starts from, and its L stays that of the
formulas. A few hundred steps at a fifth of the rate are enough. Fields that are set here or on the
command line win: --config.data.source=text --config.data.path='books/*.txt', say.
"""

from ml_collections.config_dict import placeholder

from configs import base


def get_config():
    config = base.get_config()
    for name in ("model", "encoding", "data"):
        config[name] = base.left_open(config[name])
    config.extension.name, config.extension.scale = "yarn", 4.0
    config.train_length = placeholder(int)  # None: scale x L
    config.batch_size = placeholder(int)  # None: as many tokens in a step as before
    config.learning_rate = placeholder(float)  # None: a fifth of what it was
    config.warmup_steps = 20
    config.steps = 200
    return config
