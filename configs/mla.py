"""Multi-head latent attention (MLA): keys and values from one latent, position in entries beside.

python train.py --config=configs/mla.py --workdir=runs/mla

DeepSeek-AI 2024, arXiv:2405.04434. With d = width / heads, a head has d entries of content, d / 2
rotated ones whose keys all heads share, and values of size d; the latent has 4 d entries.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="rope", layout="interleaved")
    content = config.model.width // config.model.heads
    config.model.update(head_dim=content + content // 2, value_dim=content)
    config.model.update(latent_dim=4 * content, rotary_dim=content // 2)
    return config
