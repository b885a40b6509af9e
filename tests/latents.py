"""Weights of DeepSeek-V3's attention as transformers names them, and the same in our layout."""

import numpy as np

import posenc_jax

L = 16
SIZES = {"width": 8, "heads": 2, "head_dim": 12, "value_dim": 3, "latent_dim": 5, "rotary_dim": 8}
DIMS = posenc_jax.Dims(heads=2, head_dim=12, width=8, train_length=L, rotary_dim=8)
TOKENS, LAST = 40, 8  # of the golden row, and how many of its outputs are kept
YARN = {"beta_fast": 2.0, "beta_slow": 0.05}
CASES = {"default": "none", "yarn": f"yarn:4:{':'.join(f'{k}={v}' for k, v in YARN.items())}"}


def wave(*shape: int) -> np.ndarray:
    """Numbers that every language computes alike."""
    return np.cos(np.arange(np.prod(shape)) ** 1.5 + len(shape)).reshape(shape)


def weights(width, heads, head_dim, value_dim, latent_dim, rotary_dim) -> dict[str, np.ndarray]:
    outputs = heads * (head_dim - rotary_dim + value_dim)
    return {
        "q_proj.weight": wave(heads * head_dim, width),
        "kv_a_proj_with_mqa.weight": wave(latent_dim + rotary_dim, width),
        "kv_a_layernorm.weight": 1 + wave(latent_dim) / 2,
        "kv_b_proj.weight": wave(outputs, latent_dim),
        "o_proj.weight": wave(width, heads * value_dim),
    }


def converted(theirs, heads: int, rotary_dim: int) -> dict[str, np.ndarray]:
    """The same weights by the names of ours, whose rotated entries come first in a head."""
    q = theirs["q_proj.weight"].T
    by_head = q.reshape(len(q), heads, -1)
    latent = len(theirs["kv_a_layernorm.weight"])
    both = theirs["kv_a_proj_with_mqa.weight"].T
    return {
        "q.kernel": np.roll(by_head, rotary_dim, axis=-1).reshape(q.shape),
        "k.kernel": both[:, latent:],
        "v.kernel": both[:, :latent],
        "latent_norm.scale": theirs["kv_a_layernorm.weight"],
        "up.kernel": theirs["kv_b_proj.weight"].T,
        "out.kernel": theirs["o_proj.weight"].T,
    }


def fill(attention, arrays: dict[str, np.ndarray]) -> None:
    """Overwrite the parameters of an attention of ours."""
    for path, array in arrays.items():
        module, _, name = path.partition(".")
        parameter = getattr(getattr(attention, module), name)
        assert parameter.shape == array.shape, path
        parameter[...] = array
