"""LoRA on an adopted model, for twice its L: YaRN, and rows of 512 tokens whose positions jump.

python scripts/adopt.py models/SmolLM2-135M --workdir=runs/smollm2
python train.py --config=configs/lora.py --config.init_from=runs/smollm2 --workdir=runs/lora \\
    --config.data.source=text --config.data.path='books/*.txt'
python scripts/export.py runs/lora --layout=peft --out=adapter      # or the merged model: auto

SmolLM2-135M reads 200 tokens a second on two CPU cores, so the 100 steps take 17 minutes; a step of
one row holds 1.5 GiB. Expected after 30 steps of one row at 3e-3, three seeds: in rows of 12,288
tokens the loss on books stays as it was (-0.01 nats [-0.07, 0.05]), and passages that have a copy
128 tokens back cost 0.46 more.
"""

from ml_collections.config_dict import ConfigDict

from configs import finetune


def get_config():
    config = finetune.get_config()
    config.model = ConfigDict({"lora": 8})
    # PoSE: two chunks of each row, the second of them anywhere up to 2 L.
    config.encoding = ConfigDict({"name": "randomized", "positions": "chunks"})
    config.extension.scale = 2.0
    config.train_length, config.batch_size = 512, 4
    config.learning_rate = 1e-3
    config.warmup_steps, config.steps = 10, 100
    config.log_every = 10
    config.valid_every = config.save_every = 50
    config.valid_batches = 4
    return config
