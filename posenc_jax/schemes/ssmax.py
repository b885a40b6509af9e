"""Scores scaled by the logarithm of the number of keys, around any other encoding."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import schemes
from posenc_jax.checks import LARGEST_SCALE, choice, flag, known, positive, whole_number
from posenc_jax.encoding import Dims, Encoding, Tokens, check_far, position_of, static, trained
from posenc_jax.layers import PerLayer, Wrapper, overrides

KINDS = ("trained", "llama4", "ministral3", "inkling")
OPTIONS = ("inner", "kind", "bias", "a", "layers", "each")


class InSomeLayers(PerLayer):
    """A factor on the scores of all layers, or of the layers of the kind `only`."""

    only: str | None = static(default=None, kw_only=True)

    @property
    def scales_by_place(self):
        return True

    def layer(self, index):
        scaled = super().layer(index)
        if self.only in (None, self.kind_of_layer(index)):
            return scaled
        extended = {
            name: getattr(scaled, name) for name in ("window", "logn", "temperature", "topk")
        }
        return Wrapper(dims=self.dims, inner=scaled.inner, **extended)


class SSMax(InSomeLayers):
    """Nakanishi 2025, arXiv:2501.19399: q . k times s ln n + b, trained per layer and head, per
    layer, or shared.

    n is the number of keys that a query sees: its index in the document (in its chunk, with
    chunks) plus one, at most the window; random positions of a model do not change n. s starts at
    1 / ln L without b, and at 0 with b = 1, where the factor is 1.
    """

    scale: jax.Array = trained()  # s: [H], [1] without heads, or [layers, H or 1]
    shift: jax.Array | None = trained()  # b: like s, or None

    def query_scale(self, positions):
        check_far("positions", positions)
        n = self.keys_seen(jnp.asarray(positions)).astype(jnp.float32)
        factor = self.scale[None, :, None] * by_head(jnp.log(n))
        factor = factor if self.shift is None else factor + self.shift[None, :, None]
        inner = super().query_scale(positions)
        return factor if inner is None else factor * by_head(inner)


class Tempered(InSomeLayers):
    """The fixed factor `temperature` by the query's index in its document."""

    kind: str = static()
    a: float = static()

    def factor(self, places):
        return temperature(self.kind, places, self.dims.train_length, self.a)

    def query_scale(self, positions):
        factor, inner = self.factor(positions), super().query_scale(positions)
        return factor if inner is None else by_head(factor) * by_head(inner)


class TemperedWithBias(Tempered):
    """The fixed factor `temperature` on the inner encoding's bias too."""

    def bias(self, q, k):
        bias = self.inner.bias(q, k)  # [H, Q, S], or [B, H, Q, S]
        if bias is None:  # bare positions without content
            return None
        is_ordered = isinstance(q, Tokens) and q.order is not None
        factor = self.factor(q.order if is_ordered else position_of(q))[..., None, :, None]
        return bias * (factor if factor.ndim == bias.ndim else factor[None])


def by_head(scale: jax.Array) -> jax.Array:  # [T], [B, T], [B, H, T] -> [B or 1, H or 1, T]
    return scale if scale.ndim == 3 else jnp.atleast_2d(scale)[:, None]


def temperature(kind: str, positions, length: int, a: float = 0.1) -> jax.Array:  # [T]
    """Return a factor on q . k that grows with the position p; L is `length`.

    llama4 (Meta 2025) is 1 + a ln(1 + floor((p + 1) / L)), ministral3 (Mistral AI 2025) has
    floor(p / L) instead, and inkling (Thinking Machines 2026) is 1 + a ln(max(1, (p + 1) / L)).
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
    each: str = "head",
    **inner_options,
) -> InSomeLayers:
    """Build the factor around `inner`, which may carry options: `fire:hidden=16`.

    `bias` adds b to the trained kind, which each head has, each layer, or the model; `a` belongs to
    the fixed kinds. `layers` restricts the factor to one kind of layers of an inner hybrid, as
    Llama 4 scales its global layers.
    """
    is_trained = choice("kind", kind, KINDS) == "trained"
    if choice("each", each, ("head", "layer", "model")) != "head" and not is_trained:
        raise ValueError(f"each={each!r} has no effect with kind={kind!r}, which is not trained")
    if flag("bias", bias) and not is_trained:
        raise ValueError(f"bias=True has no effect with kind={kind!r}, which is not trained")
    if positive("a", a, at_most=LARGEST_SCALE) != 0.1 and is_trained:
        raise ValueError(f"a = {a} has no effect with kind='trained'; use one of {KINDS[1:]}")
    encoding = schemes.build_inner("ssmax", OPTIONS, inner, dims, key, inner_options)
    if layers is not None:
        known(f"kind of layers of the inner {inner!r}:", layers, encoding.kinds_of_layers())
    chosen = (i for i in range(encoding.period) if layers in (None, encoding.kind_of_layer(i)))
    if all(overrides(encoding.layer(i), "recur") for i in chosen):
        raise ValueError(
            f"ssmax has no effect on inner {inner!r}: the norm of retention cancels it"
        )
    common: Any = {"dims": dims, "layers": encoding.layers, "only": layers}
    common["inner"] = encoding.replace(layers=None)
    if is_trained:
        if each == "model" and (encoding.layers is not None or dims.layers is None):
            raise ValueError(f"each='model' does not fit inner {inner!r}, which is one per layer")
        own = None if each == "model" else dims.layers
        scale, shift = _start(dims, bias, own, dims.heads if each == "head" else 1)
        return SSMax(
            **common, each=own if encoding.layers is None else None, scale=scale, shift=shift
        )
    scheme = _inkling_scheme(encoding) if kind == "inkling" else Tempered
    return scheme(**common, kind=kind, a=float(a))


def _start(
    dims: Dims, bias: bool, layers: int | None, heads: int
) -> tuple[jax.Array, jax.Array | None]:
    """Return the initial s and b, [H], or [layers, H]."""
    if dims.train_length < 2:
        raise ValueError("ssmax divides by ln L and needs a train_length of at least 2; got 1")
    shape = (heads,) if layers is None else (layers, heads)
    if bias:
        return jnp.zeros(shape), jnp.ones(shape)
    return jnp.full(shape, 1 / math.log(dims.train_length), jnp.float32), None


def _inkling_scheme(inner: Encoding) -> type[Tempered]:
    if not overrides(inner, "bias"):
        return Tempered
    if not inner.consecutive(jax.random.key(0)):
        raise ValueError(
            "kind='inkling' scales the bias by the query's index, which random positions do not "
            "give; use another inner encoding or kind"
        )
    return TemperedWithBias
