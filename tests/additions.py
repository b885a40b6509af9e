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
"""A part of the pairs slowed."""

import numpy as np

from posenc_jax.encoding import fixed
from posenc_jax.extensions._record import extension
from posenc_jax.extensions.rotary import ROTATION
from posenc_jax.checks import positive
from posenc_jax.schemes.rope import RoPE


@extension(ROTATION, scale="given", of=RoPE)
def slowed(rope: RoPE, scale: float, *, share: float = 0.5) -> RoPE:
    """Nobody 2026: the slowest `share` of the pairs divided by the scale."""
    pairs = rope.inv_freq.shape[-1]
    slow = np.arange(pairs) >= pairs * (1 - positive("share", share))
    return rope.replace(inv_freq=fixed(np.where(slow, rope.inv_freq / scale, rope.inv_freq)))
'''
LAST_THREE = '''"""Written by a test: the last three targets of each longest window."""

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
DOUBLED = '''"""Written by a test, as is its text: that of the evaluation, every token twice."""

import dataclasses

import numpy as np

from posenc_jax.evaluation.protocols.nonoverlap import NonOverlap


class Doubled(NonOverlap):
    title = "a text of its own, in which every token comes twice"
    order = 10

    def text(self, text, subject, lengths):
        split = text.split
        tokens = np.repeat(split.tokens, 2)
        starts = 2 * np.asarray(split.starts)
        own = dataclasses.replace(split, tokens=tokens, starts=starts, bytes_of=None)
        whole = dataclasses.replace(text, split=own, starts=2 * text.starts, source="doubled")
        return whole


protocol = Doubled()
'''
FILES = {
    "posenc_jax/schemes/root_bias.py": SCHEME,
    "configs/root_bias.py": RECIPE,
    "posenc_jax/extensions/slowed.py": EXTENSION,
    "posenc_jax/evaluation/protocols/last_three.py": LAST_THREE,
    "posenc_jax/evaluation/protocols/doubled.py": DOUBLED,
}
