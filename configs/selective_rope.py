"""Selective RoPE: the position of a token is a sum of steps computed from the content.

python train.py --config=configs/selective_rope.py --workdir=runs/selective_rope

encoding.bias=True starts at RoPE's steps of one; encoding.gate=True scales the steps per token.
encoding.steps=random is the control: fixed steps by place, drawn by encoding.seed.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "selective_rope"
    return config
