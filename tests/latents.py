"""DeepSeek-V3's attention by the inputs of conformance/values/mla.json, in our layout."""

import jax
import numpy as np

import models
import posenc_jax
from conformance.checking import load
from models.transformer import LatentAttention
from posenc_jax.positions import tokens_of_row

L = 16
SIZES = {"width": 8, "heads": 2, "head_dim": 12, "value_dim": 3, "latent_dim": 5, "rotary_dim": 8}
DIMS = posenc_jax.Dims(heads=2, head_dim=12, width=8, train_length=L, rotary_dim=8)
YARN = {"beta_fast": 2.0, "beta_slow": 0.05}
CASES = {case.name: case for case in load("mla").cases}
NAMES = {  # ours: theirs, as transformers names them
    "q_proj": "q_proj.weight",
    "kv_a_proj": "kv_a_proj_with_mqa.weight",
    "kv_a_norm": "kv_a_layernorm.weight",
    "kv_b_proj": "kv_b_proj.weight",
    "o_proj": "o_proj.weight",
}


def weights(inputs) -> dict[str, np.ndarray]:
    """The weights of a case by the names of transformers."""
    return {theirs: np.array(inputs[ours]) for ours, theirs in NAMES.items()}


def outputs(encoding, x, inputs):
    """The outputs [T, D] of our attention for inputs x [T, D]."""
    attention = LatentAttention(models.Config(**SIZES), jax.random.key(0))
    fill(attention, converted(weights(inputs), SIZES["heads"], SIZES["rotary_dim"]))
    row = tokens_of_row(encoding, 1, len(x))

    @jax.jit
    def output(attention, x, encoding):
        phase = encoding.phase(row.position)
        return attention(x, encoding, row, (1, *x.shape), phase, None, None)[0]

    return np.asarray(output(attention, x, encoding))


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
