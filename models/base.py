"""The interface of models; a family is a file of this folder with a line `Model = ITS_CLASS`."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import jax

from posenc_jax.encoding import Encoding, Phase, Tokens

from .cache import Cache
from .config import Config


class Layer(NamedTuple):
    """One layer of a model, as it reads some tokens."""

    encoding: Encoding
    phase: Phase | None
    tokens: Tokens  # with the features that the encoding reads
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
        """Nats of each target and the token ranked first; options of a call, but `window`.

        The targets [B, N] are those of the last N tokens; logits of the others are not computed.
        """
        ...

    def loss(
        self,
        tokens: jax.Array,
        targets: jax.Array,
        weights: jax.Array,  # [B, N]
        encoding: Encoding,
        **options,
    ) -> jax.Array:
        """The sum of `losses` times their weights, which training differentiates."""
        ...

    def step(
        self,
        tokens: jax.Array,  # [B, t]
        encoding: Encoding,
        cache: Cache,
        counts: jax.Array | None = None,  # [] or [B]: later tokens of a row are padding
    ) -> tuple[jax.Array, Cache]:  # [B, t, V]
        """Logits of the next tokens of each row, after those in the cache: a prompt, a piece of one
        or a single token. Any split gives what a call gives."""
        ...

    def hidden_step(
        self,
        tokens: jax.Array,
        encoding: Encoding,
        cache: Cache,
        counts: jax.Array | None = None,
    ) -> tuple[jax.Array, Cache]:  # [B, t, D]
        """The same without the output projection, which is `logits`."""
        ...

    def logits(self, x: jax.Array) -> jax.Array:  # [..., D] -> [..., V]
        ...

    def losses_step(
        self, tokens: jax.Array, targets: jax.Array, encoding: Encoding, cache: Cache
    ) -> tuple[jax.Array, jax.Array, Cache]:
        """`losses` of the next tokens of each row, after those in the cache."""
        ...

    def unstacked(self) -> "Model":
        """The same model in the form that is fastest to step."""
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
