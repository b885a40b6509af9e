"""CoPE: positions counted by gates that each query computes from the content of the keys.

python train.py --config=configs/cope.py --workdir=runs/cope

encoding.npos=128 counts further, encoding.divided=True divides the bias by sqrt(K) as the authors'
code does.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "cope"
    return config
