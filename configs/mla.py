"""Keys and values from one latent per token, and a rotation apart from the content (MLA).

python train.py --config=configs/mla.py --workdir=runs/mla

DeepSeek-AI 2024, arXiv:2405.04434: with heads of size d for content and values, the latent has
4 d entries, and d / 2 entries of each key are rotated and shared by all heads.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.update(name="rope", layout="interleaved")
    content = config.model.width // config.model.heads
    config.model.update(head_dim=content + content // 2, value_dim=content)
    config.model.update(latent_dim=4 * content, rotary_dim=content // 2)
    return config
