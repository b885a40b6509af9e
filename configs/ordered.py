"""Who reaches far, and who tells the last setting from an older one? L = 64, asked up to 8 L = 512.

python train.py --config=configs/ordered.py:rope --workdir=runs/ordered-rope

Any encoding of configs/ stands behind the colon. 0.4M parameters, 1,200 steps of 32 rows, the loss
on the answers alone: two to four minutes of one CPU core. Read by

python eval_extrapolation.py --workdir=runs/ordered-rope --config.lengths=64,128,256,512 \\
    --config.last=16 --config.protocols=answers,gap,reach,latest,older
"""

from configs import variables


def get_config(encoding="rope"):
    config = variables.get_config(encoding)
    config.update(steps=1_200, warmup_steps=100)
    config.data.update(variant="ordered", gaps="octaves")
    return config
