"""RoPE with trained frequencies, shared by all layers and heads.

python train.py --config=configs/rope_trained.py --workdir=runs/rope_trained

Adam changes each alpha by about the learning rate per step, and the angle of the fastest pair at
position p by p times as much, so raise encoding_rate with care.
Time: not measured.
"""

from configs import rope


def get_config(size="tiny"):
    config = rope.get_config(size)
    config.encoding.frequencies = "trained"
    config.encoding_rate = 1.0
    return config
