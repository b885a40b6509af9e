"""RoPE whose frequencies are trained, shared by all layers and heads.

python train.py --config=configs/rope_trained.py --workdir=runs/rope_trained

Adam moves each alpha by about the learning rate a step, and with it the angle of the fastest pair
at position p by p times as much: raise encoding_rate with care.
Hardware, time and bits per byte at L and at 8 L: not measured yet.
"""

from configs import rope


def get_config(size="tiny"):
    config = rope.get_config(size)
    config.encoding.frequencies = "trained"
    config.encoding_rate = 1.0
    return config
