"""The formulas of Hugging Face transformers against the published cases, and T5's bias."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import ROOT

import posenc_jax
from tests.reference import libraries

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

L, HEADS, SIZE = 64, 4, 16
WIDTH = HEADS * SIZE


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 300)])
def test_t5_bias(num_buckets, max_distance):
    import torch
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=WIDTH,
        d_kv=SIZE,
        num_heads=HEADS,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=True,
    )
    torch.manual_seed(0)
    attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    with torch.no_grad():
        expected = attention.compute_bias(4 * L, 4 * L)[0].numpy()
    dims = posenc_jax.Dims(HEADS, SIZE, WIDTH, L)
    encoding = posenc_jax.build(
        "t5",
        dims,
        jax.random.key(0),
        num_buckets=num_buckets,
        max_distance=max_distance,
        scale=1.0,  # T5 divides no q . k by sqrt(K), so its table is not multiplied by it
    ).replace(table=jnp.asarray(attention.relative_attention_bias.weight.detach().numpy()))
    bias = encoding.bias(jnp.arange(4 * L), jnp.arange(4 * L))
    seen = np.tril(np.ones((4 * L, 4 * L), bool))
    np.testing.assert_allclose(np.where(seen, bias, 0), np.where(seen, expected, 0), atol=1e-6)


def test_transformers_gives_what_the_page_says():
    page = json.loads(libraries.RESULTS.read_text())["transformers"]["subjects"]
    found = libraries.results("transformers", ROOT / "peers")["subjects"]
    assert {name: row["failed"].keys() for name, row in found.items()} == {
        name: row["failed"].keys() for name, row in page.items()
    }
