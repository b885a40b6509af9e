"""p-RoPE: the slowest quarter of RoPE's pairs does not turn.

python train.py --config=configs/prope.py --workdir=runs/prope
python train.py --config=configs/prope.py --config.encoding.keep=turned --workdir=runs/hope

Barbero et al. 2024, arXiv:2410.06205; `turned` keeps the pairs that complete a turn within L.
Hardware, time and bits per byte at L and at 8 L: not measured yet.
"""

from configs import rope


def get_config(size="tiny"):
    config = rope.get_config(size)
    config.encoding.keep = 0.75
    return config
