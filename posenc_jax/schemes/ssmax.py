"""Scores that grow with the logarithm of the number of keys, around any other encoding."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import schemes
from posenc_jax.checks import LARGEST_SCALE, choice, flag, known, positive, whole_number
from posenc_jax.encoding import (
    Dims,
    Encoding,
    OfEachLayer,
    Tokens,
    Wrapper,
    check_far,
    overrides,
    position_of,
    static,
    trained,
)

KINDS = ("trained", "llama4", "ministral3", "inkling")
OWN = ("inner", "kind", "bias", "a", "layers")


class InSomeLayers(OfEachLayer):
    """A factor on the scores of the layers of one kind; None: of all."""

    only: str | None = static(default=None, kw_only=True)

    @property
    def scales_by_place(self):
        return True

    def layer(self, index):
        own = super().layer(index)
        if self.only in (None, self.kind_of_layer(index)):
            return own
        kept = {name: getattr(own, name) for name in ("window", "logn", "temperature")}
        return Wrapper(dims=self.dims, inner=own.inner, **kept)


class SSMax(InSomeLayers):
    """Nakanishi 2025, arXiv:2501.19399: q . k times s ln n + b, trained by layer and head.

    n is the number of keys that a query sees: its place in the document plus one, at most the
    window; where there are chunks, its place in its chunk plus one. Places count tokens, also
    where positions are drawn: a position further on is no further key. s starts at 1 / ln L
    without b; with it, at s = 0 and b = 1, where nothing changes.
    """

    scale: jax.Array = trained()  # s: [H], or [layers, H]
    shift: jax.Array | None = trained()  # b: the same, or None

    def query_scale(self, positions):
        check_far("positions", positions)
        n = self.keys_seen(jnp.asarray(positions)).astype(jnp.float32)
        own = self.scale[None, :, None] * by_head(jnp.log(n))
        own = own if self.shift is None else own + self.shift[None, :, None]
        other = super().query_scale(positions)
        return own if other is None else own * by_head(other)


class Tempered(InSomeLayers):
    """A fixed factor by the place of the query, `temperature`."""

    kind: str = static()
    a: float = static()

    def factor(self, places):
        return temperature(self.kind, places, self.dims.train_length, self.a)

    def query_scale(self, positions):
        own, other = self.factor(positions), super().query_scale(positions)
        return own if other is None else by_head(own) * by_head(other)


class TemperedWithBias(Tempered):
    """The same factor on the bias of the inner encoding too."""

    def bias(self, q, k):
        bias = self.inner.bias(q, k)  # [H, Q, S], or [B, H, Q, S]
        assert bias is not None
        is_ordered = isinstance(q, Tokens) and q.order is not None
        factor = self.factor(q.order if is_ordered else position_of(q))[..., None, :, None]
        return bias * (factor if factor.ndim == bias.ndim else factor[None])


def by_head(scale: jax.Array) -> jax.Array:  # [T], [B, T], [B, H, T] -> [B or 1, H or 1, T]
    return scale if scale.ndim == 3 else jnp.atleast_2d(scale)[:, None]


def temperature(kind: str, positions, length: int, a: float = 0.1) -> jax.Array:  # [T]
    """A factor on q . k that grows with the position, in steps or smoothly; L is `length`.

    llama4 is 1 + a ln(1 + floor((p + 1) / L)), Meta 2025; ministral3 has floor(p / L) instead,
    Mistral AI 2025; inkling is 1 + a ln(max(1, (p + 1) / L)), Thinking Machines 2026.
    """
    choice("kind", kind, KINDS[1:])
    length, a = whole_number("length", length, at_least=1), positive("a", a, at_most=LARGEST_SCALE)
    check_far("positions", positions)
    place = jnp.maximum(jnp.asarray(positions), 0)
    if kind == "inkling":
        return 1 + a * jnp.log(jnp.maximum(1.0, (place.astype(jnp.float32) + 1) / length))
    steps = (place + (kind == "llama4")) // length
    return 1 + a * jnp.log1p(steps.astype(jnp.float32))


def build(
    dims: Dims,
    key: jax.Array | None = None,
    *,
    inner: str = "rope",
    kind: str = "trained",
    bias: bool = False,
    a: float = 0.1,
    layers: str | None = None,
    **inner_options,
) -> InSomeLayers:
    """Build around `inner`, whose options stand behind its name, `fire:hidden=16`, or beside.

    `bias` is for what is trained, `a` for the fixed kinds. `layers` names the kind of layers of an
    inner hybrid that are scaled, as Llama 4 scales the global ones.
    """
    is_trained = choice("kind", kind, KINDS) == "trained"
    if flag("bias", bias) and not is_trained:
        raise ValueError(f"bias=True has no effect with kind={kind!r}, which is not trained")
    if positive("a", a, at_most=LARGEST_SCALE) != 0.1 and is_trained:
        raise ValueError(f"a = {a} has no effect with kind='trained'; name one of {KINDS[1:]}")
    encoding = schemes.build_inner("ssmax", OWN, inner, dims, key, inner_options)
    if layers is not None:
        known(f"kind of layers of the inner {inner!r}:", layers, encoding.kinds_of_layers())
    around: Any = {"dims": dims, "layers": encoding.layers, "only": layers}
    around["inner"] = encoding.replace(layers=None)
    if is_trained:
        scale, shift = _start(dims, bias)
        each = dims.layers if encoding.layers is None else None
        return SSMax(**around, each=each, scale=scale, shift=shift)
    scheme = _scaling_the_bias(encoding) if kind == "inkling" else Tempered
    return scheme(**around, kind=kind, a=float(a))


def _start(dims: Dims, bias: bool) -> tuple[jax.Array, jax.Array | None]:
    """Where s and b start: one per head, of each layer where there are several."""
    if dims.train_length < 2:
        raise ValueError("ssmax divides by ln L and needs a train_length of at least 2; got 1")
    shape = (dims.heads,) if dims.layers is None else (dims.layers, dims.heads)
    if bias:
        return jnp.zeros(shape), jnp.ones(shape)
    return jnp.full(shape, 1 / math.log(dims.train_length), jnp.float32), None


def _scaling_the_bias(inner: Encoding) -> type[Tempered]:
    if not overrides(inner, "bias"):
        return Tempered
    if not inner.consecutive(jax.random.key(0)):
        raise ValueError(
            "kind='inkling' scales the bias by the place of the query, which drawn positions do "
            "not tell; take another inner encoding or kind"
        )
    return TemperedWithBias
