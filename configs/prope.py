"""p-RoPE: RoPE without rotation in the slowest quarter of pairs.

python train.py --config=configs/prope.py --workdir=runs/prope
python train.py --config=configs/prope.py --config.encoding.keep=turned --workdir=runs/hope

Barbero et al. 2024, arXiv:2410.06205; keep=turned rotates only pairs that complete a turn
within L.
Time: not measured.
"""

from configs import rope


def get_config(size="tiny"):
    config = rope.get_config(size)
    config.encoding.keep = 0.75
    return config
