"""Reach and order on `variables` with older settings, trained at L = 64, evaluated to 8 L = 512.

python train.py --config=configs/ordered.py:rope --workdir=runs/ordered-rope

After the colon: any encoding of configs/. 0.4M parameters, 1,200 steps of 32 rows, loss on answers
only: two to four minutes on one CPU core. To evaluate:

python eval_extrapolation.py --workdir=runs/ordered-rope --config.lengths=64,512 \\
    --config.protocols=found,last_of_two --config.extensions=none,yarn,self_extend
"""

from configs import variables


def get_config(encoding="rope"):
    config = variables.get_config(encoding)
    config.update(steps=1_200, warmup_steps=100)
    config.data.update(variant="ordered", gaps="octaves")
    return config
