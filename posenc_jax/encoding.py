"""The interface between position encodings and models."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from posenc_jax.checks import FARTHEST, MOST, token_count, whole_number


@dataclasses.dataclass(frozen=True)
class Dims:
    """Sizes of the model that an encoding is built for."""

    heads: int
    head_dim: int
    width: int
    train_length: int
    layers: int | None = None  # None: unknown, so all layers share one encoding
    # First entries of a head that may be rotated, apart from the content (MLA); None: all of them.
    rotary_dim: int | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            most = FARTHEST if field.name == "train_length" else MOST
            value = whole_number(field.name, value, at_least=1, at_most=most)
            object.__setattr__(self, field.name, value)


def trained(**options):
    """A field trained with the model; all other arrays stay as built."""
    return struct.field(metadata={"trained": True}, **options)


def static(**options):
    """A static field: each value compiles another program."""
    return struct.field(pytree_node=False, **options)


class Tokens(struct.PyTreeNode):
    """The queries or the keys of attention: positions of the tokens and their features."""

    position: jax.Array  # [T] or [B, T]
    document: jax.Array | None = None  # [B, T]; tokens see only their own document
    order: jax.Array | None = None  # [T] or [B, T], for causality; None: index in the row
    features: Any = None  # pytree of [B, T, ...], from Encoding.read; gets a gradient
    # True: positions are 0, 1, 2, ... in each document, and the queries are the last keys. In a
    # block of a row, given to `bias`: positions are consecutive.
    contiguous: bool = static(default=False)
    # Axis of a mesh over whose devices the rows are cut, which attention then goes around.
    axis: str | None = static(default=None)


def position_of(tokens) -> Any:  # [T] or [B, T]
    """Return the positions of `Tokens`, or bare positions unchanged."""
    return tokens.position if isinstance(tokens, Tokens) else tokens


class Phase(struct.PyTreeNode):
    """Cosines and sines that rotate queries and keys, including any common factor."""

    q_cos: jax.Array  # [B or 1, H or 1, Q, R/2]
    q_sin: jax.Array
    k_cos: jax.Array  # [B or 1, H or 1, S, R/2]
    k_sin: jax.Array
    # Which entries are a pair: "half" or "interleaved"; "polar": each entry is one, of the length
    # softplus(x) and the angle 0, and R/2 is the number of entries.
    layout: str = struct.field(pytree_node=False)


class Region(struct.PyTreeNode):
    """A subset of the visible keys, and the positions of queries and keys within it.

    Regions are disjoint and together contain every visible key. Bounds count tokens back from the
    query, as windows do.
    """

    q_position: jax.Array | None = None  # [Q] or [B, Q]; None: the tokens' own
    k_position: jax.Array | None = None  # [S] or [B, S]
    between: tuple[jax.Array, jax.Array] | None = None  # [Q] or [B, Q]: least and most tokens back
    # Static bounds in addition to `between`; blocks outside them are skipped.
    nearest: int = static(default=0)  # least number of tokens back
    window: int | None = static(default=None)  # fewer than this many tokens back
    first: int | None = static(default=None)  # only the first keys of a document, by `between`
    # What `between` says of a row whose positions are 0, 1, 2, ...: the size of chunks, and the
    # least and most chunks back (None: all) of the keys from their query.
    chunks: tuple[int, int, int | None] | None = static(default=None)

    def moved(self, tokens: Tokens, position: jax.Array | None) -> Tokens:
        """Return the tokens at their positions in this region."""
        if position is None:
            return tokens
        return tokens.replace(position=position, contiguous=False)

    def holds(self, back: jax.Array) -> jax.Array:  # [B or 1, Q, S] -> the same
        """Mask of the keys in the region, from their numbers of tokens back."""
        mask = back >= self.nearest
        if self.window is not None:
            mask &= back < self.window
        if self.between is not None:
            near, far = (jnp.atleast_2d(bound)[..., None] for bound in self.between)
            mask &= (back >= near) & (back <= far)
        return mask


class Encoding(struct.PyTreeNode, kw_only=True):
    """The base class: no positional information; a scheme overrides some of the hooks."""

    dims: Dims = static()
    layers: int | None = static(default=None)  # leading axis of every leaf; None: shared
    window: int | None = static(default=None)  # tokens a query sees, itself included
    chunk: int | None = static(default=None)  # size of chunks; a query sees only its chunk
    logn: bool = static(default=False)
    temperature: jax.Array | None = None  # [], a factor on q . k
    topk: int | None = static(default=None)  # a query attends to the keys of its highest logits
    own_name: str | None = static(default=None)  # of a module of one's own, as it was given
    # Of the attention that `attend` calls, if it calls one: what the caller of `attend` chose.
    implementation: str = static(default="auto")
    # The class: jax 0.10 compares pytrees of two dataclasses by their fields alone, and now and
    # then runs the program of the one for the other.
    own_class: type | None = static(default=None, repr=False)

    # True: `attend` also attends to keys on other devices (`Tokens.axis`).
    attends_across_devices: ClassVar[bool] = False
    # True: `attend` is a softmax over keys, which follows `topk`.
    attends_by_softmax: ClassVar[bool] = False
    # True: where no kernel of a GPU fits, plain attention is faster there than blocks.
    plain_on_gpu: ClassVar[bool] = False
    # True: the phase of a token follows from its own position, whatever the others are.
    phase_of_each: ClassVar[bool] = False

    def __post_init__(self):
        object.__setattr__(self, "own_class", type(self))

    @property
    def train_length(self) -> int:
        return self.dims.train_length

    @property
    def name(self) -> str:
        return self.own_name or type(self).__module__.rpartition(".")[2]

    @property
    def reach(self) -> int | None:
        """The number of positions it supports; None: unlimited."""
        return None

    @property
    def remedy(self) -> str:
        """Advice for lengths beyond the reach."""
        return "use a shorter length"

    @property
    def depth(self) -> int | None:
        """The number of layers with separate arrays; None: any number shares them."""
        return self.layers

    def by_layer(self) -> tuple[Any, Any]:
        """Split into per-layer arrays, with a leading axis, and shared arrays.

        `combine` joins the arrays of one layer with the shared ones.
        """
        arrays = self.replace(layers=None)
        nothing = jax.tree.map(lambda leaf: None, arrays)
        return (nothing, arrays) if self.layers is None else (arrays, nothing)

    @property
    def period(self) -> int:
        """The number of layers after which their kinds repeat; 1: all are alike."""
        return 1

    def layer(self, index: int) -> Any:
        """Return the encoding of one layer."""
        if self.layers is None:
            return self
        return jax.tree.map(lambda leaf: leaf[index], self).replace(layers=None)

    def named_parts(self) -> dict[str, Any]:
        """Return the encodings inside this one by place, such as `inner` or `kinds/local`."""
        places = jax.tree.leaves_with_path(self, is_leaf=self._is_part)
        return {_place(path): part for path, part in places if self._is_part(part)}

    def with_parts(self, parts: Mapping[str, Any]) -> Any:
        """Replace some of the encodings inside this one."""
        return jax.tree.map_with_path(
            lambda path, part: parts.get(_place(path), part), self, is_leaf=self._is_part
        )

    def _is_part(self, part: Any) -> bool:
        return isinstance(part, Encoding) and part is not self

    def kinds_of_layers(self) -> list[str]:
        """List the names of parts that belong to some layers and not to others."""
        return []

    def kind_of_layer(self, index: int) -> str | None:
        """Return the name of the part that a layer uses; None: layers are alike."""
        return None

    def for_rows(self, length: int) -> Any:
        """Return the encoding of rows of so many tokens; most do not depend on that."""
        parts = self.named_parts()
        chosen = {place: part.for_rows(length) for place, part in parts.items()}
        return self.with_parts(chosen) if chosen else self

    def windowed(self, window: int | None) -> Any:
        """Limit what a query sees to the last `window` tokens; None: no limit."""
        if window is None:
            return self
        return self.replace(window=self.narrowed(token_count("window", window)))

    def narrowed(self, window: int | None = None) -> int | None:
        """Return the smallest of `window` and the encoding's window and chunk; None: unlimited."""
        windows = (self.window, self.chunk, window)
        return min((w for w in windows if w is not None), default=None)

    def positions(self, length: int, key: jax.Array | None = None) -> jax.Array:  # [T]
        """Return the positions of a row's tokens; with a key, draw them as in training."""
        check_reach(self, length)
        return jnp.arange(length)

    def consecutive(self, key: jax.Array | None = None) -> bool:
        """True if `positions` returns 0, 1, 2, ..."""
        return type(self).positions is Encoding.positions

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:  # [B, T, D] -> [B, T, D]
        return x

    def read(
        self, x: jax.Array, before: Any = None, document: jax.Array | None = None
    ) -> dict[str, Any] | None:  # [B, T, D] -> pytrees of [B, T, ...]
        """Compute features of tokens from the input of a layer's attention, as a dictionary.

        `before` holds those of the token right before, [B, 1, ...], which is in the document of the
        first token, if a row is read in parts, and `document` the numbers of documents, [B, T], if
        several share a row.
        """
        return None

    def phase(self, positions: jax.Array) -> Phase | None:
        return None

    def regions(self, q_tokens: Tokens, k_tokens: Tokens) -> tuple[Region, ...]:
        """Return regions of keys in which tokens have other positions; by default one region."""
        return (Region(),)

    def bias(self, q: Any, k: Any) -> jax.Array | None:
        """Return the bias added to the logits: [H, Q, S], or [B, H, Q, S] if rows differ.

        Takes `Tokens` or bare positions [Q] and [S]; must be finite above the diagonal too.
        """
        return None

    def logits(self, scores: jax.Array, bias: jax.Array | None) -> jax.Array:
        """Combine scores [B, H, Q, S] and bias before masking; by default add them."""
        if bias is None:
            return scores
        return scores + (bias if bias.ndim == 4 else bias[None])

    def query_scale(self, positions: jax.Array) -> jax.Array | None:
        """Return a factor [T], [B, T] or [B or 1, H, T] on q . k but not on the bias.

        The extensions `logn` and `temperature` set it. With `scales_by_place` it takes indices in
        the document instead of positions.
        """
        scale = None
        if self.logn:
            check_far("positions", positions)
            place = jnp.maximum(positions, 0).astype(jnp.float32)
            scale = jnp.maximum(1.0, jnp.log1p(place) / math.log(self.train_length))
        if self.temperature is None:
            return scale
        constant = jnp.broadcast_to(self.temperature, positions.shape)
        return constant if scale is None else constant * scale

    @property
    def scales_by_place(self) -> bool:
        """True if `query_scale` takes indices in the document instead of positions."""
        return False

    def keys_seen(self, places: jax.Array) -> jax.Array:
        """Return the number of keys seen by queries at these indices in their documents."""
        n = jnp.maximum((places if self.chunk is None else places % self.chunk) + 1, 1)
        return n if self.window is None else jnp.minimum(n, self.window)

    def visible_keys(self) -> tuple[int, int | None]:
        """Return how many first and how many last keys of a row a query may see; None: all."""
        return 0, self.narrowed()

    def sink(self, tokens: Tokens) -> jax.Array | None:  # [B or 1, H, Q or 1]
        """Return logits of the queries that join the softmax without a value."""
        return None

    def attend(
        self, q: jax.Array, k: jax.Array, v: jax.Array, q_tokens: Tokens, k_tokens: Tokens
    ) -> jax.Array:
        """Compute attention with heads before tokens, in place of the usual one.

        Queries are scaled and rotated already, and keys rotated; `window` is all that limits what
        queries see, besides tokens.
        """
        raise NotImplementedError

    def recur(
        self, q: jax.Array, k: jax.Array, v: jax.Array, before: jax.Array, counts: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Compute `attend` for tokens after those of a state [B, H, K, K], which a cache holds in
        place of keys, in float32 and at first 0; return the state after `counts` of them too.

        `counts` is [], or [B] if rows differ; later tokens are padding.
        """
        raise NotImplementedError


def _place(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


class DistanceBias(Encoding):
    """An encoding whose bias depends only on the distance, query - key >= 0.

    For positions 0, 1, 2, ... attention may evaluate `curve` once instead of `bias`.
    """

    def curve(self, distance: jax.Array) -> jax.Array:  # [N] -> [H, N]
        raise NotImplementedError

    def bias(self, q, k):
        q_positions, k_positions = position_of(q), position_of(k)
        check_far("positions", (q_positions, k_positions))
        # Values above the diagonal are masked, but their gradients must be finite too.
        distance = jnp.maximum(q_positions[..., :, None] - k_positions[..., None, :], 0)
        curve = self.curve(distance.reshape(-1))  # [H, N]
        return jnp.moveaxis(curve.reshape(-1, *distance.shape), 0, -3)


class SlopeBias(DistanceBias):
    """A bias of -m * distance, which kernels need not be given."""

    def slope(self) -> jax.Array:  # [H], m
        raise NotImplementedError

    def curve(self, distance):
        return -self.slope()[:, None] * distance.astype(jnp.float32)[None, :]


def two_sum(left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the float32 sum and its exact rounding error."""
    high = left + right
    moved = high - left
    return high, (left - (high - moved)) + (right - moved)


class KeySum(Encoding):
    """An encoding whose bias is a sum over the tokens after the key, up to the query.

    Every token carries the running sum, so the bias is a difference of two sums. A float32
    difference of large sums loses digits, so each sum comes with its rounding error.
    """

    def sums(self, tokens: Any) -> tuple[jax.Array, jax.Array]:  # [T, H] or [B, T, H], twice
        """Return the sum up to each token, and its rounding error, which gets no gradient."""
        raise NotImplementedError

    def bias(self, q, k):
        (q_sum, q_rest), (k_sum, k_rest) = self.sums(q), self.sums(k)
        difference = q_sum[..., :, None, :] - k_sum[..., None, :, :]
        rest = q_rest[..., :, None, :] - k_rest[..., None, :, :]
        return jnp.moveaxis(difference + jax.lax.stop_gradient(rest), -1, -3)


def check_reach(encoding: Encoding, length: int):
    reach = encoding.reach
    if reach is None or length <= reach:
        return
    raise ValueError(
        f"encoding {encoding.name!r} reaches {reach} positions, fewer than {length}; "
        f"{encoding.remedy}"
    )


def trained_mask(encoding: Encoding) -> Encoding:
    """Return the same tree with True for trained leaves and False for the others."""
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

    Only the trained part goes to the optimizer; `combine` joins them again.
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
    """Join the two parts that `partition` returned, with updated trained values."""
    return jax.tree.map(
        lambda leaf, other: other if leaf is None else leaf,
        trained,
        fixed,
        is_leaf=lambda leaf: leaf is None,
    )


def fixed(values) -> jax.Array:
    """Round float64 values, computed on the host, to float32."""
    return jnp.asarray(np.asarray(values, np.float64).astype(np.float32))


def check_encoding(encoding) -> None:
    if not isinstance(encoding, Encoding):
        raise ValueError(f"encoding must be made by posenc_jax.build; got {encoding!r}")


def check_far(name: str, positions) -> None:
    """Check known positions against the range in which float32 distinguishes them."""
    for part in jax.tree.leaves(positions):
        values = known_values(part)
        if values is None or not values.size:
            continue
        for value in (values.min(), values.max()):
            if not -FARTHEST <= value <= FARTHEST:  # also true for NaN
                raise ValueError(
                    f"{name} must be finite and at most 2^24 = {FARTHEST:,} from 0, beyond which "
                    f"float32 angles coincide; got {value}"
                )


def known_values(values) -> np.ndarray | None:
    """Return values on the host; None if unknown: under a trace or on other processes."""
    for leaf in jax.tree.leaves(values):
        if isinstance(leaf, Tracer):
            return None
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return None
    return np.asarray(jax.device_get(values))
