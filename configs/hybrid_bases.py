"""Layers as in Gemma 3: windows with one base of RoPE, global layers with another.

python train.py --config=configs/hybrid_bases.py:small --workdir=runs/hybrid_bases
python eval_extrapolation.py --workdir=runs/hybrid_bases --config.extensions=none,pi:8:layers=global

Gemma Team 2025, arXiv:2503.19786: five local layers, then a global one; bases 10,000 and 1,000,000;
an extension changes the global layers alone. Size small has the six layers of one such period;
size tiny has four, so there the pattern is three local layers and a global one.
Hardware, time and bits per byte at L and at 8 L: not measured yet.
"""

from configs import hybrid


def get_config(size="tiny"):
    config = hybrid.get_config(size)
    local = min(5, config.model.layers - 1)
    config.encoding.pattern = ",".join(["local"] * local + ["global"])
    config.encoding.update(global_rope=True, local_base=10_000.0, global_base=1_000_000.0)
    return config
