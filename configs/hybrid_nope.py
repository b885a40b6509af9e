"""Layers as in Command A: windows with RoPE, and every fourth layer global without position.

python train.py --config=configs/hybrid_nope.py:small --workdir=runs/hybrid_nope

Cohere 2025, arXiv:2504.00698: windows of 4,096 tokens (L / 2 here) and interleaved rotation. Size
small has six layers; only the fourth is global.
Size tiny: 5 to 6.5 minutes on one CPU core with evaluation.
"""

from configs import hybrid


def get_config(size="tiny"):
    config = hybrid.get_config(size)
    config.encoding.update(layout="interleaved", window=config.train_length // 2)
    return config
