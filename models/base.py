"""The interface of models; a family is a file of this folder with a line `Model = ITS_CLASS`."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from posenc_jax.encoding import Encoding, Phase, Tokens

from .config import Config


class Keys(struct.PyTreeNode):
    """Keys and values of the tokens that a layer has read, before any rotation."""

    k: jax.Array  # [B, G, S, K]
    v: jax.Array  # [B, G, S, K]
    tokens: Tokens

    def followed_by(self, later: "Keys") -> "Keys":
        """These keys and those of the tokens right after them."""

        def joined(before, after, axis: int):
            return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis), before, after)

        held, new = self.tokens, later.tokens
        tokens = new.replace(
            position=joined(held.position, new.position, -1),
            document=joined(held.document, new.document, -1),
            order=joined(held.order, new.order, -1),
            features=joined(held.features, new.features, 1),
        )
        return Keys(joined(self.k, later.k, 2), joined(self.v, later.v, 2), tokens)


class Layer(NamedTuple):
    """One layer of a model, as it reads some tokens."""

    encoding: Encoding
    phase: Phase | None
    tokens: Tokens  # with the features that the encoding reads
    x: jax.Array  # [B, T, D], its input
    read: jax.Array  # [B, T, D], the input of its attention, normalised
    queries: Callable[[jax.Array], jax.Array]  # of an input of attention: [B, H, T, K], unrotated
    keys: Callable[[jax.Array], jax.Array]  # [B, G, T, K], unrotated


class Model(Protocol):
    """A decoder whose position encoding is passed to it; a pytree of trained arrays."""

    config: Config

    def __call__(
        self,
        tokens: jax.Array,  # [B, T]
        encoding: Encoding,
        *,
        key: jax.Array | None = None,  # for encodings with random positions in training
        positions: jax.Array | None = None,  # [T] or [B, T], as in `attend`
        segments: jax.Array | None = None,  # [B, T], equal neighbours share a document
        window: int | None = None,
    ) -> jax.Array:  # [B, T, V]
        """Logits of the next token."""
        ...

    def losses(
        self, tokens: jax.Array, targets: jax.Array, encoding: Encoding, **options
    ) -> tuple[jax.Array, jax.Array]:  # [B, N] twice
        """Nats of each target and whether it ranks first; options of a call, but `window`.

        The targets [B, N] are those of the last N tokens; logits of the others are not computed.
        """
        ...

    @staticmethod
    def decays(path: str) -> bool:
        """True if weight decay applies to the array of this name."""
        ...

    def flops_per_token(self, length: int) -> float:
        """Operations of a training step per token, in rows of `length`."""
        ...

    def layers(self, tokens: jax.Array, encoding: Encoding) -> Iterator[Layer]:  # tokens [B, T]
        """Every layer with its input, for diagnostics."""
        ...
