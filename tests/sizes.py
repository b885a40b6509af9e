"""The sizes of the small model that most tests use, its encodings, recipes and training rows."""

from importlib import import_module

import numpy as np

from posenc_jax.config import load
from posenc_jax.data.batches import Batch
from posenc_jax.testing import DIMS, L
from posenc_jax.testing import VOCAB as VOCAB

VARIANTS = {  # options that turn a scheme into another encoding
    "rope with a sink": ("rope", {"sink": True}, "none"),
    "rope with a sink of tokens": ("rope", {"sink": "token"}, "none"),
    "selective_rope of random steps": ("selective_rope", {"steps": "random"}, "none"),
    "rope with imaginary heads": ("rope", {"imaginary": True}, "none"),
    "fox of fixed gates around rope": ("fox", {"gate": "fixed", "inner": "rope"}, "none"),
    "hybrid of decay layers": ("hybrid", {"pattern": "decay,global"}, "none"),
    "fox of trained biases": ("fox", {"gate": "bias_only"}, "none"),
    "self_extend": ("rope", {}, "self_extend:group=2"),
    "dca": ("rope", {}, "dca"),
    "yarn by query": ("rope", {}, "yarn:4:attention_factor=query"),
    "streaming": ("rope", {}, "streaming:window=33"),  # two layers see all of the longest rows
}

NEEDED = {  # options that some extensions cannot do without
    "abf": "abf:base=50000",
    "temperature": "temperature:factor=1.25",
    "topk": "topk:k=5",
}


def with_options(extension, scheme="rope"):
    """The text of an extension, with a factor for each pair of the scheme."""
    pairs = DIMS.head_dim // (1 if scheme == "pope" else 2)
    lambdas = "/".join(map(str, np.geomspace(1, 4, pairs)))
    return (NEEDED | {"longrope": f"longrope:lambdas={lambdas}"}).get(extension, extension)


def config_of(name, **fields):
    """The run of a recipe made small; fields are flattened, `model.layers`."""
    config = import_module(f"configs.{name}").get_config()
    config.model.update(width=16, heads=2, layers=2, vocab=31)
    config.update(train_length=L, batch_size=4, steps=20, warmup_steps=2)
    config.update_from_flattened_dict(fields)
    return load(config)


def rows(batch=4, length=8, seed=0):
    """A batch for training steps in this process."""
    tokens = np.random.default_rng(seed).integers(0, 31, (batch, length + 1)).astype(np.int32)
    ones = np.ones((batch, length), np.float32)
    segments = np.zeros((batch, length), np.int32)
    return Batch(tokens[:, :-1], tokens[:, 1:], ones, segments, ones.astype(int))
