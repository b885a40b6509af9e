"""Rotary settings of a config.json against transformers: frequencies and factors on cos and sin."""

import itertools

import jax
import numpy as np
import pytest

import posenc_jax
from posenc_jax.pretrained.rope import rope_of

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

L, K = 64, 16
FACTORS = {
    "short_factor": np.geomspace(1, 2, K // 2).tolist(),
    "long_factor": np.geomspace(1, 20, K // 2).tolist(),
}
MSCALES = (None, 0, 0.0, 0.5, 0.707, 1, 1.0)
YARN = [
    {"rope_type": "yarn", "factor": factor, **stated}
    for factor in (1.0, 4.0, 40)
    for stated in (
        *({"mscale": a, "mscale_all_dim": b} for a, b in itertools.product(MSCALES, MSCALES)),
        {"mscale": 1.0},
        {"mscale_all_dim": 1.0},
        {"attention_factor": 1.0},
        {"attention_factor": 1.1, "mscale": 0.707, "mscale_all_dim": 1.0},
    )
]
LONGROPE = [
    {"rope_type": "longrope", **FACTORS, **stated}
    for stated in ({}, {"factor": 1.0}, {"factor": 3.5}, {"attention_factor": 1.25})
]


def config_of(settings, base, longest):
    from transformers import LlamaConfig

    parameters = settings | {"rope_theta": base, "original_max_position_embeddings": L}
    sizes = {"hidden_size": K, "num_attention_heads": 1, "max_position_embeddings": longest}
    return LlamaConfig(**sizes, rope_parameters=parameters)


def ours(settings, base, longest):
    parameters = settings | {"rope_theta": base, "original_max_position_embeddings": L}
    stated = {"rope_parameters": parameters, "rope_scaling": None}
    options = dict(rope_of(stated | {"max_position_embeddings": longest}).extension)
    rope = posenc_jax.build("rope", posenc_jax.Dims(1, K, K, L), base=base)
    return posenc_jax.extend(options.pop("name"), rope, options.pop("scale"), **options)


@pytest.mark.filterwarnings("ignore:YaRN's ramp collapses")
@pytest.mark.parametrize("base", [1e4, 5e5])
def test_numbers_of_a_file_are_those_of_transformers(base):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    factors = set()
    for settings, length in itertools.product(YARN + LONGROPE, (1, L, L + 1, 8 * L)):
        theirs, kind = config_of(settings, base, 8 * L), settings["rope_type"]
        inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](theirs, "cpu", seq_len=length)
        encoding = ours(settings, base, 8 * L).for_rows(length)
        np.testing.assert_allclose(encoding.inv_freq, inv_freq, rtol=3e-7, err_msg=str(settings))
        np.testing.assert_allclose(encoding.gain, factor, rtol=1e-7, err_msg=str(settings))
        factors.add(float(factor))
    assert len(factors) > 15


@pytest.mark.parametrize("settings", LONGROPE, ids=str)
def test_phi_rotates_short_and_long_rows_alike(settings):
    import torch
    from transformers import Phi3Config
    from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

    rotary = Phi3RotaryEmbedding(
        Phi3Config(
            hidden_size=K,
            num_attention_heads=1,
            max_position_embeddings=8 * L,
            original_max_position_embeddings=L,
            rope_parameters=settings | {"rope_theta": 1e4},
        )
    )
    encoding = ours(settings, 1e4, 8 * L)
    for length in (1, L, L + 1, 8 * L, 5):  # also back to a short row
        cos, sin = rotary(torch.zeros(1), torch.arange(length)[None])
        phase = jax.jit(encoding.for_rows(length).phase)(np.arange(length))
        for got, expected in ((phase.q_cos, cos), (phase.k_sin, sin)):
            expected = expected[0, :, : K // 2]
            np.testing.assert_allclose(got[0, 0], expected, atol=5e-5)
