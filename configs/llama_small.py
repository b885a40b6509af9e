"""Llama's architecture: RMSNorm, SwiGLU, grouped key/value heads, untied output projection.

python train.py --config=configs/llama_small.py --workdir=runs/llama_small
python scripts/export.py runs/llama_small --out=exported --layout=auto   # for transformers
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "rope"
    config.model.activation, config.model.tied = "swiglu", False
    config.model.kv_heads = config.model.heads // 2
    return config
