"""The one interface through which position reaches a model."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from posenc_jax.checks import FARTHEST, MOST, whole_number


@dataclasses.dataclass(frozen=True)
class Dims:
    """Sizes of the model that an encoding serves."""

    heads: int
    head_dim: int
    width: int
    train_length: int
    layers: int | None = None  # None: not known, so one encoding serves all layers

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            most = FARTHEST if field.name == "train_length" else MOST
            value = whole_number(field.name, value, at_least=1, at_most=most)
            object.__setattr__(self, field.name, value)


def trained():
    """A field that is learned with the model; all other arrays stay as they were built."""
    return struct.field(metadata={"trained": True})


def static(**options):
    """A field that is static: another value compiles another program."""
    return struct.field(pytree_node=False, **options)


class Tokens(struct.PyTreeNode):
    """One side of attention: the positions of its tokens and what they carry."""

    position: jax.Array  # [T] or [B, T]
    document: jax.Array | None = None  # [B, T]; tokens see those of their own document
    order: jax.Array | None = None  # [T] or [B, T], decides what is seen; None: place in the row
    features: Any = None  # pytree of [B, T, ...], from Encoding.read; gets a gradient
    # True: places 0, 1, 2, ... within a document, and the queries are the last of the keys.
    contiguous: bool = static(default=False)


def position_of(tokens) -> Any:  # [T] or [B, T]
    """The positions of `Tokens`, or bare positions as they are."""
    return tokens.position if isinstance(tokens, Tokens) else tokens


class Phase(struct.PyTreeNode):
    """Cosine and sine that rotate queries and keys, any common factor included."""

    q_cos: jax.Array  # [B or 1, H or 1, Q, R/2]
    q_sin: jax.Array
    k_cos: jax.Array  # [B or 1, H or 1, S, R/2]
    k_sin: jax.Array
    layout: str = struct.field(pytree_node=False)


class Region(struct.PyTreeNode):
    """A part of the keys that a query sees, and where both sides stand there.

    Regions are disjoint and together hold every key that is seen. Tokens back count as windows do.
    """

    q_position: jax.Array | None = None  # [Q] or [B, Q]; None: where the tokens stand
    k_position: jax.Array | None = None  # [S] or [B, S]
    between: tuple[jax.Array, jax.Array] | None = None  # [Q] or [B, Q]: from .. to tokens back
    # Static bounds, by which blocks outside are skipped; they hold beside `between`.
    nearest: int = static(default=0)  # tokens back, at least
    window: int | None = static(default=None)  # and fewer than
    first: int | None = static(default=None)  # `between` leaves only so many keys of a document

    def moved(self, tokens: Tokens, position: jax.Array | None) -> Tokens:
        """Tokens where they stand in this region."""
        if position is None:
            return tokens
        return tokens.replace(position=position, contiguous=False)

    def holds(self, back: jax.Array) -> jax.Array:  # [B or 1, Q, S] -> the same
        """Which keys are in the region, so many tokens back."""
        held = back >= self.nearest
        if self.window is not None:
            held &= back < self.window
        if self.between is not None:
            near, far = (jnp.atleast_2d(bound)[..., None] for bound in self.between)
            held &= (back >= near) & (back <= far)
        return held


class Encoding(struct.PyTreeNode, kw_only=True):
    """An encoding without position; a scheme overrides the hooks it is about."""

    dims: Dims = static()
    layers: int | None = static(default=None)  # leading axis of every leaf; None: shared by all
    window: int | None = static(default=None)  # how far back a query sees, itself included
    chunk: int | None = static(default=None)  # a query sees only its chunk of so many places
    logn: bool = static(default=False)
    temperature: jax.Array | None = None  # [], a factor on q . k

    # A scheme may bring an attention of its own, (q, k, v, q_tokens, k_tokens) -> out.
    attend: ClassVar[Any] = None

    @property
    def train_length(self) -> int:
        return self.dims.train_length

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    @property
    def reach(self) -> int | None:
        """The number of positions it can express; None: any number."""
        return None

    @property
    def remedy(self) -> str:
        """Advice for lengths beyond the reach."""
        return "use a shorter length"

    @property
    def depth(self) -> int | None:
        """The number of layers that have arrays of their own; None: it serves any number."""
        return self.layers

    def by_layer(self) -> tuple[Any, Any]:
        """Split into arrays that each layer has of its own, with a leading axis, and shared ones.

        `combine` joins those of one layer with the shared ones.
        """
        one = self.replace(layers=None)
        nothing = jax.tree.map(lambda leaf: None, one)
        return (nothing, one) if self.layers is None else (one, nothing)

    @property
    def period(self) -> int:
        """The number of layers after which they repeat; 1: all have the same hooks."""
        return 1

    def layer(self, index: int) -> Any:
        """The encoding of one layer."""
        if self.layers is None:
            return self
        return jax.tree.map(lambda leaf: leaf[index], self).replace(layers=None)

    def named_parts(self) -> dict[str, Any]:
        """Encodings inside this one, by name; empty where there are none."""
        return {}

    def with_parts(self, parts: Mapping[str, Any]) -> Any:
        """The same encoding with other encodings under some of those names."""
        raise NotImplementedError

    def kinds_of_layers(self) -> list[str]:
        """Names of parts that serve some layers and not others."""
        return []

    def kind_of_layer(self, index: int) -> str | None:
        """Which of them serves a layer."""
        return None

    def narrowed(self, window: int | None) -> int | None:
        """The smallest of another window and the encoding's own, its chunk included; None: none."""
        given = (self.window, self.chunk, window)
        return min((w for w in given if w is not None), default=None)

    def positions(self, length: int, key: jax.Array | None = None) -> jax.Array:  # [T]
        """Positions of a row's tokens; a key asks for the random draw of training."""
        check_reach(self, length)
        return jnp.arange(length)

    def consecutive(self, key: jax.Array | None = None) -> bool:
        """Whether `positions` are 0, 1, 2, ..."""
        return type(self).positions is Encoding.positions

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:  # [B, T, D] -> [B, T, D]
        return x

    def read(self, x: jax.Array, before: Any = None) -> Any:  # [B, T, D] -> pytree of [B, T, ...]
        """Features that tokens carry, read from the input of a layer's attention.

        `before` holds the features of the preceding tokens, where a row is read in parts.
        """
        return None

    def phase(self, positions: jax.Array) -> Phase | None:
        return None

    def regions(self, q_tokens: Tokens, k_tokens: Tokens) -> tuple[Region, ...]:
        """Regions of keys that see the tokens at other positions; by default all are one."""
        return (Region(),)

    def bias(self, q: Any, k: Any) -> jax.Array | None:
        """The bias added to the logits: [H, Q, S], or [B, H, Q, S] where it differs between rows.

        Takes `Tokens` or bare positions [Q] and [S]; must be finite above the diagonal too.
        """
        return None

    def logits(self, scores: jax.Array, bias: jax.Array | None) -> jax.Array:
        """Combine scores [B, H, Q, S] and bias before the mask; by default their sum."""
        if bias is None:
            return scores
        return scores + (bias if bias.ndim == 4 else bias[None])

    def query_scale(self, positions: jax.Array) -> jax.Array | None:
        """A factor [T], [B, T] or [B or 1, H, T] on q . k but not on the bias.

        The extensions `logn` and `temperature` set it. Takes places in the document instead of
        positions where `scales_by_place`.
        """
        scale = None
        if self.logn:
            check_far("positions", positions)
            scale = jnp.log1p(positions.astype(jnp.float32)) / math.log(self.train_length)
            scale = jnp.maximum(1.0, scale)
        if self.temperature is None:
            return scale
        constant = jnp.broadcast_to(self.temperature, positions.shape)
        return constant if scale is None else constant * scale

    @property
    def scales_by_place(self) -> bool:
        """Whether `query_scale` asks how many tokens precede a query, wherever they stand."""
        return False

    def keys_seen(self, places: jax.Array) -> jax.Array:
        """The number of keys that queries at these places of their documents see, at least one."""
        n = jnp.maximum((places if self.chunk is None else places % self.chunk) + 1, 1)
        return n if self.window is None else jnp.minimum(n, self.window)

    def sink(self) -> jax.Array | None:  # [H]
        """A logit per head that takes part in the softmax and has no value."""
        return None


class DistanceBias(Encoding):
    """An encoding whose bias depends on the distance query - key >= 0 alone.

    For tokens 0, 1, 2, ... attention may use the curve once instead of the bias.
    """

    def curve(self, distance: jax.Array) -> jax.Array:  # [N] -> [H, N]
        raise NotImplementedError

    def straight(self) -> jax.Array | None:  # [H]
        """m where the curve is -m * distance, which kernels without a bias support; else None."""
        return None

    def bias(self, q, k):
        q_positions, k_positions = position_of(q), position_of(k)
        check_far("positions", (q_positions, k_positions))
        # Values above the diagonal are masked, but their gradients must be finite too.
        distance = jnp.maximum(q_positions[..., :, None] - k_positions[..., None, :], 0)
        curve = self.curve(distance.reshape(-1))  # [H, N]
        return jnp.moveaxis(curve.reshape(-1, *distance.shape), 0, -3)


def two_sum(left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The sum in float32, and what its rounding left out, exactly."""
    high = left + right
    moved = high - left
    return high, (left - (high - moved)) + (right - moved)


class KeySum(Encoding):
    """An encoding whose bias sums a quantity of the tokens after the key, up to the query.

    Every token carries the running sum up to itself, so the bias is a difference of two sums. In
    float32 a difference of large sums loses digits, so each sum carries its rounding error too.
    """

    def sums(self, tokens: Any) -> tuple[jax.Array, jax.Array]:  # [T, H] or [B, T, H], twice
        """The sum up to each token, and its rounding error, which gets no gradient."""
        raise NotImplementedError

    def bias(self, q, k):
        (q_sum, q_rest), (k_sum, k_rest) = self.sums(q), self.sums(k)
        difference = q_sum[..., :, None, :] - k_sum[..., None, :, :]
        rest = q_rest[..., :, None, :] - k_rest[..., None, :, :]
        return jnp.moveaxis(difference + jax.lax.stop_gradient(rest), -1, -3)


class Wrapper(Encoding):
    """An encoding around another one; it forwards every hook that a subclass does not override."""

    inner: Encoding

    @property
    def name(self):
        return self.inner.name if type(self) is Wrapper else super().name

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
        own, shared = self.inner.by_layer()
        nothing: Any = jax.tree.map(lambda leaf: None, self)
        return nothing.replace(inner=own), self.replace(inner=shared)

    def layer(self, index):
        own = super().layer(index)
        return own.replace(inner=own.inner.layer(index))

    def named_parts(self):
        return {"inner": self.inner}

    def with_parts(self, parts):
        return self.replace(**parts)

    def kinds_of_layers(self):
        return self.inner.kinds_of_layers()

    def kind_of_layer(self, index):
        return self.inner.kind_of_layer(index)

    def narrowed(self, window):
        return self.inner.narrowed(super().narrowed(window))

    def positions(self, length, key=None):
        return self.inner.positions(length, key)

    def consecutive(self, key=None):
        forwards = type(self).positions is Wrapper.positions
        return forwards and self.inner.consecutive(key)

    def embed(self, x, positions):
        return self.inner.embed(x, positions)

    def read(self, x, before=None):
        return self.inner.read(x, before)

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
        own, inner = super().query_scale(positions), self._narrowed().query_scale(positions)
        if own is None or inner is None:
            return own if inner is None else inner
        by_head = inner.ndim == 3  # [B or 1, H, T]
        return (jnp.atleast_2d(own)[:, None] if by_head else own) * inner

    def _narrowed(self) -> Encoding:
        """The inner encoding in the window of this one too."""
        return self.inner.replace(window=self.inner.narrowed(self.window))

    def sink(self):
        return self.inner.sink()


class OfEachLayer(Wrapper):
    """A wrapper whose trained arrays are of each layer, while layers share what is inside."""

    # As many layers; None: these arrays are of one.
    each: int | None = static(default=None, kw_only=True)

    @property
    def depth(self):
        return super().depth if self.each is None else self.each

    def layer(self, index):
        if self.each is None:
            return super().layer(index)
        own = {name: value[index] for name, value in self._own().items()}
        return self.replace(each=None, **own).layer(index)

    def by_layer(self):
        one = self.replace(each=None)
        if self.each is None:
            return super().by_layer()
        own, shared = super(OfEachLayer, one).by_layer()
        arrays = self._own()
        return own.replace(**arrays), shared.replace(**dict.fromkeys(arrays))

    def _own(self) -> dict[str, jax.Array]:
        found = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata.get("trained", False)
        }
        return {name: value for name, value in found.items() if value is not None}


def chunk_of(encoding: Encoding) -> int | None:
    """The size of the chunks of places within which tokens see each other; None: no chunks."""
    while isinstance(encoding, Wrapper):
        encoding = encoding.inner
    return encoding.chunk


def bearer(encoding: Encoding, hook: str) -> Encoding:
    """The encoding that answers a hook, behind the wrappers that forward it."""
    while isinstance(encoding, Wrapper) and _of(encoding, hook) is getattr(Wrapper, hook):
        encoding = encoding.inner
    return encoding


def overrides(encoding: Encoding, hook: str) -> bool:
    """Whether an encoding overrides a hook; hooks that nobody overrides cost nothing."""
    return _of(bearer(encoding, hook), hook) is not getattr(Encoding, hook)


def _of(encoding: Encoding, hook: str):
    return getattr(type(encoding), hook)


def check_reach(encoding: Encoding, length: int):
    reach = encoding.reach
    if reach is None or length <= reach:
        return
    raise ValueError(
        f"encoding {encoding.name!r} reaches {reach} positions, {length} were asked for; "
        f"{encoding.remedy}"
    )


def stack(encodings: Sequence[Encoding]) -> Encoding:
    """Stack one encoding per layer into one pytree whose leaves have a leading layer axis."""
    shared = [isinstance(e, Encoding) and e.depth is None for e in encodings]
    if not shared or not all(shared):
        raise ValueError("stack takes at least one encoding, one per layer, none of them stacked")
    structures = [jax.tree.structure(e) for e in encodings]
    shapes = [[leaf.shape for leaf in jax.tree.leaves(e)] for e in encodings]
    for i, (structure, shape) in enumerate(zip(structures, shapes, strict=True)):
        if structure != structures[0] or shape != shapes[0]:
            raise ValueError(
                f"layers differ in more than numbers: layer 0 has {encodings[0]}, "
                f"layer {i} has {encodings[i]}"
            )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *encodings)
    return stacked.replace(layers=len(encodings))


def one_per_layer(make: Callable[[jax.Array], Encoding], dims: Dims, key: jax.Array) -> Encoding:
    """A stack of encodings, each made with a key of its own."""
    if dims.layers is None:
        raise ValueError("one encoding per layer needs the number of layers: give Dims(layers=...)")
    return stack([make(key) for key in jax.random.split(key, dims.layers)])


def trained_mask(encoding: Encoding) -> Encoding:
    """The same tree with True where a leaf is trained, else False."""
    fields = {}
    for field in dataclasses.fields(encoding):
        value = getattr(encoding, field.name)
        if field.metadata.get("pytree_node", True):
            is_trained = field.metadata.get("trained", False)
            fields[field.name] = jax.tree.map(
                lambda part, answer=is_trained: (
                    trained_mask(part) if isinstance(part, Encoding) else answer
                ),
                value,
                is_leaf=lambda part: isinstance(part, Encoding),
            )
    return encoding.replace(**fields)


def partition(encoding: Encoding) -> tuple[Encoding, Encoding]:
    """Split an encoding into (trained, fixed), each with None for the leaves of the other.

    A module that holds an encoding gives only the first to its optimizer; `combine` joins them.
    """
    mask = trained_mask(encoding)
    trained, fixed = (
        jax.tree.map(
            lambda leaf, is_trained, part=part: leaf if is_trained is part else None, *pair
        )
        for part, pair in ((True, (encoding, mask)), (False, (encoding, mask)))
    )
    return trained, fixed


def combine(trained: Encoding, fixed: Encoding) -> Encoding:
    """Join the two parts that `partition` returned, with the current trained values."""
    return jax.tree.map(
        lambda one, other: other if one is None else one,
        trained,
        fixed,
        is_leaf=lambda leaf: leaf is None,
    )


def fixed(values) -> jax.Array:
    """Round numbers computed in float64 on the host to float32, once."""
    return jnp.asarray(np.asarray(values, np.float64).astype(np.float32))


def check_encoding(encoding) -> None:
    if not isinstance(encoding, Encoding):
        raise ValueError(f"encoding must be made by posenc_jax.build; got {encoding!r}")


def check_key(key) -> None:
    """Check that a key is one of jax's, a new or an old one, or None."""
    if key is None:
        return
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    is_new = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and shape == ()
    if not is_new and (dtype != jnp.uint32 or shape not in ((2,), (4,))):
        found = repr(key) if shape is None else f"an array of {dtype}{list(shape)}"
        raise ValueError(f"key must be a single key, such as jax.random.key(0); got {found}")


def check_far(name: str, positions) -> None:
    """Check that float32 tells the positions of all arrays apart, where values are known."""
    for part in jax.tree.leaves(positions):
        known = in_sight(part)
        if known is None or not known.size:
            continue
        for value in (known.min(), known.max()):
            if not -FARTHEST <= value <= FARTHEST:  # also true for NaN
                raise ValueError(
                    f"{name} must be finite and at most 2^24 = {FARTHEST:,} from 0, beyond which "
                    f"float32 angles coincide; got {value}"
                )


def in_sight(values) -> np.ndarray | None:
    """Values on the host; None where they are unknown: in a trace or on other processes."""
    for leaf in jax.tree.leaves(values):
        if isinstance(leaf, Tracer):
            return None
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return None
    return np.asarray(jax.device_get(values))
