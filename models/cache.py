"""Keys and values of the tokens that a model has read, so that later tokens need not read them.

Keys are held unrotated and rotated when they are read, so that decoding equals the full pass of
the same encoding. The encoding may change between steps: keys of the first layer are then those of
a full pass, later ones come from hidden states of earlier encodings. A layer with a window holds a
ring of its last keys. A key's place follows from its slot and the number of tokens read.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh

from posenc_jax.attention import phase_between, turn
from posenc_jax.checks import token_count
from posenc_jax.encoding import Encoding, Phase, Tokens, check_reach, known_values
from posenc_jax.layers import bearer, holds_state, overrides
from posenc_jax.runtime.devices import DATA, SEQUENCE, by_pieces, by_rows

from .config import Config

EMPTY = np.iinfo(np.int32).max  # the order of a slot without a key: after every query


class LayerCache(struct.PyTreeNode):
    """Keys and values of one layer in slots: the first places, and a ring of the last ones.

    With a latent (MLA) they are one for all heads: the shared entries of the keys, and the latent.
    Rows and heads are one axis, as in XLA's products: with two, a step copied the whole cache.
    """

    k: jax.Array  # [B * G, S, K]
    v: jax.Array  # [B * G, S, K], or another size than keys have
    features: Any  # pytree of [B, S, ...], from Encoding.read
    first: int = struct.field(pytree_node=False)  # slots that keep their key

    @property
    def slots(self) -> int:
        return self.k.shape[1]

    def slot(self, places: jax.Array) -> jax.Array:
        """The slots of places, of any shape."""
        ring = jnp.maximum(self.slots - self.first, 1)
        return jnp.where(places < self.first, places, self.first + (places - self.first) % ring)

    def places(self, length: jax.Array) -> jax.Array:  # [] or [B] -> [S] or [B, S]
        """The place of each slot's key after so many tokens; EMPTY: none yet."""
        slots = _each_row(jnp.arange(self.slots), length)
        ring = max(self.slots - self.first, 1)
        last = length[..., None] - 1
        rounds = jnp.where(slots < self.first, 0, (last - slots) // ring)
        places = slots + rounds * ring
        return jnp.where((rounds >= 0) & (places <= last), places, EMPTY)

    def tokens(self, length: jax.Array) -> Tokens:
        """The tokens of the slots, to be attended to."""
        return _of_places(self.places(length), self.features)

    def latest(self, length: jax.Array) -> Any:  # pytree of [B, 1, ...]
        """Features of the last token."""

        def of_leaf(leaf):  # [B, S, ...]
            slot = jnp.broadcast_to(self.slot(length - 1), (len(leaf),))
            return leaf[jnp.arange(len(leaf)), slot][:, None]

        return jax.tree.map(of_leaf, self.features)

    def fits(self, encoding: Encoding, new: int) -> bool:
        """True if `new` keys overwrite none that their own queries see."""
        first, last = encoding.visible_keys()
        if self.first == self.slots:
            return True
        if last is None or first > self.first or last > self.slots - self.first:
            raise ValueError(
                f"a query of encoding {encoding.name!r} sees the first {first} and the last {last} "
                f"keys, but the cache holds {self.first} and {self.slots - self.first}: make it "
                "for this encoding"
            )
        return last - 1 + new <= self.slots - self.first

    def written(self, new: "LayerCache", length: jax.Array, counts: jax.Array) -> "LayerCache":
        """Write the keys of tokens after the first `length`, the first `counts` of them."""
        tokens, whole = new.slots, self.slots
        if tokens == 1 or (length.ndim == 0 and self.first == whole):
            return self._put(new, self.slot(length))
        # A slot takes the new token of its place, if there is one.
        source = self.places(length + counts)  # [S] or [B, S]
        source = source - (length if length.ndim == 0 else length[:, None])
        fresh = (source >= 0) & (source < tokens)
        source = jnp.where(fresh, source, 0)

        def chosen(held, added):
            shape = [1] * held.ndim
            shape[1] = whole
            if source.ndim == 1:
                return jnp.where(fresh.reshape(shape), jnp.take(added, source, 1), held)
            shape[0] = len(held)
            of_rows, mask = (_each_head(a, held).reshape(shape) for a in (source, fresh))
            return jnp.where(mask, jnp.take_along_axis(added, of_rows, 1), held)

        return self._each(new, chosen)

    def _put(self, new: "LayerCache", slot: jax.Array) -> "LayerCache":
        def put(held, added):
            write = jax.lax.dynamic_update_slice_in_dim
            if slot.ndim == 0:
                return write(held, added, slot, 1)
            of_rows = _each_head(slot, held)
            return jax.vmap(lambda a, b, at: write(a, b, at, 0))(held, added, of_rows)

        return self._each(new, put)

    def append(self, new: "LayerCache") -> "LayerCache":
        return self._each(new, lambda held, added: jnp.concatenate([held, added], 1))

    def _each(self, new: "LayerCache", change) -> "LayerCache":
        return self.replace(
            k=change(self.k, new.k),
            v=change(self.v, new.v),
            features=jax.tree.map(change, self.features, new.features),
        )


class LayerState(struct.PyTreeNode):
    """What a layer without a softmax holds, whatever the length."""

    k: jax.Array  # [B, H, K, K], sums over keys, each times its value


class Cache(struct.PyTreeNode):
    """Keys and values held for each row; `step` takes a cache and returns the next."""

    layers: tuple[Any, ...]  # LayerCache or LayerState
    length: jax.Array  # tokens read: [], or [B] if rows differ
    rows: int = struct.field(pytree_node=False)  # B
    size: int = struct.field(pytree_node=False)  # most tokens
    empty: bool = struct.field(pytree_node=False, default=True)  # nothing has been read
    # True: keys are rotated when they are written, by the encoding of that step.
    rotated: bool = struct.field(pytree_node=False, default=False)

    def places(self, tokens: int) -> jax.Array:  # [t] or [B, t]
        """The places of the next tokens."""
        return self.length[..., None] + _each_row(jnp.arange(tokens), self.length)

    def check_room(self, batch: int, tokens: int) -> None:
        """Check that the next tokens fit, as far as the length is known."""
        if batch != self.rows:
            raise ValueError(f"the cache was made for {self.rows} rows; got tokens of {batch}")
        length = 0 if self.empty else known_values(self.length)
        if length is not None and np.max(length) + tokens > self.size:
            raise ValueError(
                f"the cache holds {self.size} tokens; {np.max(length)} were read and {tokens} "
                "follow: give init_cache a larger size"
            )

    def latest(self) -> Any:  # pytree of [B, 1, ...]
        """Features of the last token of each row, in a cache of one layer; None: no token yet."""
        (held,) = self.layers
        return None if self.empty else held.latest(self.length)

    def layer(self, index: int) -> "Cache":
        return self.replace(layers=(self.layers[index],))


def init_cache(
    config: Config,
    encoding: Encoding,
    batch: int,
    size: int,
    *,
    rotated: bool = False,
    mesh: Mesh | None = None,
) -> Cache:
    """Make an empty cache for up to `size` tokens a row; later ones are refused, or NaN under jit.

    With `rotated`, keys are rotated once, when they are written: faster, and equal to the full
    pass if all steps have one encoding. Not every encoding can: see `rotates_once`.

    With a mesh, its devices share the cache: axis `data` cuts the rows, `sequence` the slots.
    """
    encoding = encoding.for_rows(token_count("size", size))
    if mesh is not None and batch % mesh.shape[DATA]:
        raise ValueError(
            f"batch must be a multiple of {mesh.shape[DATA]}, the devices of the mesh's axis "
            f"{DATA!r}; got {batch}"
        )
    check_reach(encoding, size)
    if not encoding.consecutive():
        raise ValueError(
            f"positions of encoding {encoding.name!r} depend on the final length, so it has no "
            "cache; evaluate it by whole windows"
        )
    layers = [encoding.layer(index) for index in range(config.layers)]
    if rotated and not rotates_once(config, encoding):
        raise ValueError(f"keys of encoding {encoding.name!r} cannot be rotated once")
    return Cache(
        layers=tuple(_empty(config, layer, batch, size, rotated, mesh) for layer in layers),
        length=jnp.zeros((), jnp.int32),
        rows=batch,
        size=size,
        rotated=rotated,
    )


def rotates_once(config: Config, encoding: Encoding) -> bool:
    """True if keys may be rotated when they are written: each by its own position alone, at one
    position in all regions, and alike in all heads that share it."""
    # Layers of one kind, and rows of two lengths, differ in numbers alone.
    encoding, kinds = encoding.for_rows(1), range(min(encoding.period, config.layers))
    return all(_rotates_once(config, encoding.layer(index)) for index in kinds)


def _rotates_once(config: Config, layer: Encoding) -> bool:
    if not overrides(layer, "phase"):
        return True
    if overrides(layer, "regions") or not bearer(layer, "phase").phase_of_each:
        return False
    phase = jax.eval_shape(layer.phase, jax.ShapeDtypeStruct((1,), jnp.int32))
    return phase is None or phase.k_cos.shape[1] == 1 or config.held_sizes[0] == config.heads


class Seen(NamedTuple):
    """Keys that new queries attend to, and the queries, rotated if the cache is."""

    q: jax.Array  # [B, H, t, K]
    k: jax.Array  # [B, G, S, K]
    v: jax.Array  # [B, G, S, K]
    tokens: Tokens  # of the keys
    phase: Phase | None


def keys_for(
    q: jax.Array,  # [B, H, t, K]
    k: jax.Array,  # [B, G, t, K], the new keys
    v: jax.Array,  # [B, G, t, K]
    encoding: Encoding,
    tokens: Tokens,
    cache: Cache,  # of this layer
    counts: jax.Array,  # [] or [B], the tokens of a row that are not padding
) -> tuple[Seen, LayerCache]:
    """Return the held keys and the new ones, to be attended to, and what the layer holds then."""
    (held,), length, after = cache.layers, cache.length, cache.length + counts
    phase = encoding.phase(tokens.position) if cache.rotated or cache.empty else None
    if cache.rotated:
        q, k, v = turn(q, k, v, encoding, phase)
        phase = None
    new = LayerCache(_merged(k), _merged(v), tokens.features, first=0)
    written = held.written(new, length, counts)
    if cache.empty:
        seen, seen_tokens = new, tokens
    elif held.fits(encoding, q.shape[2]):
        seen, seen_tokens = written, written.tokens(after)
    else:
        seen = held.append(new)
        places = jnp.concatenate([held.places(length), tokens.position], axis=-1)
        seen_tokens = _of_places(places, seen.features)
    if not cache.empty and not cache.rotated:
        phase = phase_between(encoding, tokens.position, seen_tokens.position)
    k, v = (a.reshape(len(q), -1, *a.shape[1:]) for a in (seen.k, seen.v))
    return Seen(q, k, v, seen_tokens, phase), written


def _merged(a: jax.Array) -> jax.Array:  # [B, G, S, K] -> [B * G, S, K]
    return a.reshape(-1, *a.shape[2:])


def _each_head(of_rows: jax.Array, held: jax.Array) -> jax.Array:  # [B, ...] -> [B * G, ...]
    """Repeat what rows have for the heads of a held array; its features have none."""
    return jnp.repeat(of_rows, len(held) // len(of_rows), axis=0)


def _each_row(line: jax.Array, length: jax.Array) -> jax.Array:
    """A line [N], or [1, N] where rows differ in length."""
    return line.reshape((1,) * length.ndim + line.shape)


def _of_places(places: jax.Array, features: Any) -> Tokens:
    return Tokens(jnp.where(places == EMPTY, 0, places), order=places, features=features)


def _empty(
    config: Config, layer: Encoding, batch: int, size: int, rotated: bool, mesh: Mesh | None
) -> LayerCache | LayerState:
    if holds_state(layer):
        shape = batch, config.heads, config.head_size, config.value_size
        return LayerState(jnp.zeros(shape, device=None if mesh is None else by_rows(mesh)))
    first, last = layer.visible_keys()
    slots = size if last is None else min(first + last, size)
    ring = slots < size
    if mesh is not None:  # each device holds as many
        slots += -slots % mesh.shape[SEQUENCE]
    zeros = partial(jnp.zeros, device=None if mesh is None else by_pieces(mesh))
    dtype = jnp.dtype(config.dtype)
    heads, of_key, of_value = config.held_sizes
    if rotated:  # a rotation may make two entries of one
        q, k = (jnp.zeros((1, each, 1, of_key)) for each in (config.heads, heads))
        of_key = turn(q, k, k, layer, layer.phase(jnp.zeros(1)))[1].shape[3]
    features = None
    if overrides(layer, "read"):
        x = jax.ShapeDtypeStruct((batch, slots, config.width), dtype)
        shapes = jax.eval_shape(layer.read, x)
        features = jax.tree.map(lambda leaf: zeros(leaf.shape, leaf.dtype), shapes)
    # Two arrays: a step may be given both to write on.
    k, v = (zeros((batch * heads, slots, size), dtype) for size in (of_key, of_value))
    return LayerCache(k=k, v=v, features=features, first=first if ring else slots)
