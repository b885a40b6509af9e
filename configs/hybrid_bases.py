"""Layers as in Gemma 3: local and global layers with different RoPE bases.

python train.py --config=configs/hybrid_bases.py:small --workdir=runs/hybrid_bases
python eval_extrapolation.py --workdir=runs/hybrid_bases --config.extensions=none,pi,pi:layers=all

Gemma Team 2025, arXiv:2503.19786: five local layers with base 10,000, then a global one with base
1,000,000; extensions change only global layers. Size small has the six layers of one period; size
tiny has four, three local and one global.
Time: not measured.
"""

from configs import hybrid


def get_config(size="tiny"):
    config = hybrid.get_config(size)
    local = min(5, config.model.layers - 1)
    config.encoding.pattern = ",".join(["local"] * local + ["global"])
    config.encoding.update(global_rope=True, local_base=10_000.0, global_base=1_000_000.0)
    return config
