"""Encodings around encodings, and one encoding per layer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import registry
from posenc_jax.encoding import Dims, Encoding, static


class Wrapper(Encoding):
    """An encoding around another one, to which it forwards every hook it does not override."""

    inner: Encoding

    @property
    def name(self):
        own = super().name
        return own if self.own_name or own in registry.encodings() else self.inner.name

    @property
    def train_length(self):
        return self.inner.train_length

    @property
    def reach(self):
        return self.inner.reach

    @property
    def remedy(self):
        return self.inner.remedy

    @property
    def period(self):
        return self.inner.period

    @property
    def depth(self):
        return self.inner.depth if self.layers is None else self.layers

    def by_layer(self):
        if self.layers is not None:
            return super().by_layer()
        per_layer, shared = self.inner.by_layer()
        nothing: Any = jax.tree.map(lambda leaf: None, self)
        return nothing.replace(inner=per_layer), self.replace(inner=shared)

    def layer(self, index):
        wrapper = super().layer(index)
        return wrapper.replace(inner=wrapper.inner.layer(index))

    def kinds_of_layers(self):
        return self.inner.kinds_of_layers()

    def kind_of_layer(self, index):
        return self.inner.kind_of_layer(index)

    def narrowed(self, window=None):
        return self.inner.narrowed(super().narrowed(window))

    def positions(self, length, key=None):
        return self.inner.positions(length, key)

    def consecutive(self, key=None):
        forwards = type(self).positions is Wrapper.positions
        return forwards and self.inner.consecutive(key)

    def embed(self, x, positions):
        return self.inner.embed(x, positions)

    def read(self, x, before=None, document=None):
        return self.inner.read(x, before, document)

    def phase(self, positions):
        return self.inner.phase(positions)

    def regions(self, q_tokens, k_tokens):
        return self.inner.regions(q_tokens, k_tokens)

    def bias(self, q, k):
        return self.inner.bias(q, k)

    def logits(self, scores, bias):
        return self.inner.logits(scores, bias)

    @property
    def scales_by_place(self):
        return self.inner.scales_by_place

    def keys_seen(self, places):
        return self._narrowed().keys_seen(places)

    def query_scale(self, positions):
        outer, inner = super().query_scale(positions), self._narrowed().query_scale(positions)
        if outer is None or inner is None:
            return outer if inner is None else inner
        by_head = inner.ndim == 3  # [B or 1, H, T]
        return (jnp.atleast_2d(outer)[:, None] if by_head else outer) * inner

    def _narrowed(self) -> Encoding:
        """Return the inner encoding, restricted to the window of this one."""
        return self.inner.replace(window=self.inner.narrowed(self.window))

    def visible_keys(self):
        first, last = self.inner.visible_keys()
        return first, super().narrowed(last)

    def sink(self, tokens):
        return self.inner.sink(tokens)

    def attend(self, q, k, v, q_tokens, k_tokens):
        return self.inner.attend(q, k, v, q_tokens, k_tokens)

    def recur(self, q, k, v, before, counts):
        return self.inner.recur(q, k, v, before, counts)


class Capped(Wrapper):
    """Scores s become cap tanh(s / cap), before the bias."""

    cap: float = static()

    def logits(self, scores, bias):
        return self.inner.logits(self.cap * jnp.tanh(scores / self.cap), bias)


def check_capped(encoding: Encoding) -> None:
    """Reject an encoding with a layer whose scores no cap reaches."""
    if overrides_in_some_layer(encoding, "attend"):
        raise ValueError(
            f"encoding {encoding.name!r} has its own attention, whose scores have no cap: use "
            "model.score_cap = None"
        )


class PerLayer(Wrapper):
    """A wrapper with trained arrays per layer around an encoding that layers share."""

    # Number of layers; None: the arrays belong to one layer.
    each: int | None = static(default=None, kw_only=True)

    @property
    def depth(self):
        return super().depth if self.each is None else self.each

    def layer(self, index):
        if self.each is None:
            return super().layer(index)
        arrays = {name: value[index] for name, value in self._trained_arrays().items()}
        return self.replace(each=None, **arrays).layer(index)

    def by_layer(self):
        if self.each is None:
            return super().by_layer()
        per_layer, shared = super(PerLayer, self.replace(each=None)).by_layer()
        arrays = self._trained_arrays()
        return per_layer.replace(**arrays), shared.replace(**dict.fromkeys(arrays))

    def _trained_arrays(self) -> dict[str, jax.Array]:
        arrays = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata.get("trained", False)
        }
        return {name: value for name, value in arrays.items() if value is not None}


def chunk_of(encoding: Encoding) -> int | None:
    """Return the size of the chunks within which tokens see each other; None: no chunks."""
    while isinstance(encoding, Wrapper):
        encoding = encoding.inner
    return encoding.chunk


def topk_of(encoding: Encoding) -> int | None:
    """Return the number of keys that a query attends to; None: all."""
    while encoding.topk is None and isinstance(encoding, Wrapper):
        encoding = encoding.inner
    return encoding.topk


def bearer(encoding: Encoding, hook: str) -> Encoding:
    """Return the encoding that implements a hook, inside the wrappers that forward it."""
    while isinstance(encoding, Wrapper) and _of(encoding, hook) is getattr(Wrapper, hook):
        encoding = encoding.inner
    return encoding


def overrides(encoding: Encoding, hook: str) -> bool:
    """True if an encoding overrides a hook; attention skips the others."""
    return _of(bearer(encoding, hook), hook) is not getattr(Encoding, hook)


def overrides_in_some_layer(encoding: Encoding, hook: str) -> bool:
    return any(overrides(encoding.layer(i), hook) for i in range(encoding.period))


def holds_state(encoding: Encoding) -> bool:
    """True if a cache holds a state of a layer in place of its keys."""
    return overrides(encoding, "recur") and encoding.narrowed() is None


def _of(encoding: Encoding, hook: str):
    return getattr(type(encoding), hook)


def stack(encodings: Sequence[Encoding]) -> Encoding:
    """Stack one encoding per layer into a pytree whose leaves have a leading layer axis."""
    shared = [isinstance(e, Encoding) and e.depth is None for e in encodings]
    if not shared or not all(shared):
        raise ValueError(
            "stack needs at least one encoding, one per layer, and none that is already stacked"
        )
    structures = [jax.tree.structure(e) for e in encodings]
    shapes = [[leaf.shape for leaf in jax.tree.leaves(e)] for e in encodings]
    for i, (structure, shape) in enumerate(zip(structures, shapes, strict=True)):
        if structure != structures[0] or shape != shapes[0]:
            raise ValueError(
                f"layers must differ in array values alone: layer 0 has {encodings[0]}, "
                f"layer {i} has {encodings[i]}"
            )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *encodings)
    return stacked.replace(layers=len(encodings))


def one_per_layer(make: Callable[[jax.Array], Encoding], dims: Dims, key: jax.Array) -> Encoding:
    """Stack encodings built from one key per layer."""
    if dims.layers is None:
        raise ValueError("one encoding per layer needs the number of layers: give Dims(layers=...)")
    return stack([make(key) for key in jax.random.split(key, dims.layers)])
