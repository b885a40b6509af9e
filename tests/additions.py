"""Files that tests add to a copy of the project: an encoding, an extension, two protocols."""

SCHEME = '''"""A penalty that grows with the square root of the distance."""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, DistanceBias, trained


class RootBias(DistanceBias):
    """Written by a test, arXiv:0000.00000."""

    log_slope: jax.Array = trained()  # [H]

    def curve(self, distance):
        return -jnp.exp(self.log_slope)[:, None] * jnp.sqrt(distance.astype(jnp.float32))[None, :]


def build(dims: Dims, key: jax.Array, *, sharpness: float = 1.0) -> RootBias:
    draw = jax.random.normal(key, (dims.heads,))
    return RootBias(dims=dims, log_slope=sharpness * draw)
'''

RECIPE = '''"""A penalty by the square root of the distance."""

from configs import base


def get_config():
    config = base.get_config()
    config.encoding = dict(name="root_bias", sharpness=1.0)
    return config
'''
EXTENSION = '''
"""Slow down some rotary pairs."""

import numpy as np

from posenc_jax.encoding import fixed
from posenc_jax.extensions._record import extension
from posenc_jax.extensions.rotary import ROTATION
from posenc_jax.checks import positive
from posenc_jax.schemes.rope import RoPE


@extension(ROTATION, scale="given", of=RoPE)
def slowed(rope: RoPE, scale: float, *, share: float = 0.5) -> RoPE:
    """Example 2026: divide the slowest `share` of the pairs by the scale."""
    pairs = rope.inv_freq.shape[-1]
    slow = np.arange(pairs) >= pairs * (1 - positive("share", share))
    return rope.replace(inv_freq=fixed(np.where(slow, rope.inv_freq / scale, rope.inv_freq)))
'''
LAST_THREE = '''"""The last three targets of each longest window; written by a test."""

import numpy as np

from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.windows import plan_of


class LastThree(Protocol):
    title = "the last three targets"
    order = 9

    def plan(self, text, length, span):
        offsets = np.full((len(text.starts), 1), text.longest - length)
        return plan_of(text, length, offsets, length - 3)


protocol = LastThree()
'''
DOUBLED = '''"""The evaluation's text with every token twice; written by a test."""

import dataclasses

import numpy as np

from posenc_jax.evaluation.protocols.nonoverlap import NonOverlap


class Doubled(NonOverlap):
    title = "the text with every token doubled"
    order = 10

    def text(self, text, subject, lengths):
        split = text.split
        tokens = np.repeat(split.tokens, 2)
        starts = 2 * np.asarray(split.starts)
        doubled = dataclasses.replace(split, tokens=tokens, starts=starts, bytes_of=None)
        return dataclasses.replace(text, split=doubled, starts=2 * text.starts, source="doubled")


protocol = Doubled()
'''
FILES = {
    "posenc_jax/schemes/root_bias.py": SCHEME,
    "configs/root_bias.py": RECIPE,
    "posenc_jax/extensions/slowed.py": EXTENSION,
    "posenc_jax/evaluation/protocols/last_three.py": LAST_THREE,
    "posenc_jax/evaluation/protocols/doubled.py": DOUBLED,
}
