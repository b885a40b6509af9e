"""The one interface through which position reaches a model."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from posenc_jax.options import whole_number

FARTHEST = 1 << 24  # float32, in which angles are made, tells positions apart up to here


@dataclasses.dataclass(frozen=True)
class Dims:
    """What an encoding has to know of the model it serves."""

    heads: int
    head_dim: int
    width: int
    train_length: int

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = whole_number(field.name, getattr(self, field.name), at_least=1)
            object.__setattr__(self, field.name, value)


class Phase(struct.PyTreeNode):
    """Cosine and sine by which queries and keys are turned, any common factor included."""

    q_cos: jax.Array  # [B or 1, H or 1, Q, R/2]
    q_sin: jax.Array
    k_cos: jax.Array  # [B or 1, H or 1, S, R/2]
    k_sin: jax.Array
    layout: str = struct.field(pytree_node=False)


def trained():
    """A field that is learned with the model. All other arrays stay what they were built as."""
    return struct.field(metadata={"trained": True})


def static(**options):
    """A field that is part of the program: another value compiles another program."""
    return struct.field(pytree_node=False, **options)


class Encoding(struct.PyTreeNode, kw_only=True):
    """No position at all: every hook does nothing. A scheme overrides the hooks it is about."""

    dims: Dims = static()
    layers: int | None = static(default=None)  # leading axis of every leaf; None: shared by all
    logn: bool = static(default=False)
    window: int | None = static(default=None)  # how far back a query sees, itself included

    @property
    def train_length(self) -> int:
        return self.dims.train_length

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    @property
    def reach(self) -> int | None:
        """How many positions can be expressed; None: any number."""
        return None

    @property
    def remedy(self) -> str:
        """What to do beyond the reach."""
        return "use a shorter length"

    def positions(self, length: int, key: jax.Array | None = None) -> jax.Array:  # [T]
        """Where the tokens of a row stand; a key asks for the random draw of training."""
        check_reach(self, length)
        return jnp.arange(length)

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:  # [B, T, D] -> [B, T, D]
        return x

    def phase(self, positions: jax.Array) -> Phase | None:
        return None

    def bias(self, q_positions: jax.Array, k_positions: jax.Array) -> jax.Array | None:
        """[H, Q, S], or [B, H, Q, S] where positions differ between rows; added to the logits."""
        return None

    def query_scale(self, positions: jax.Array) -> jax.Array | None:
        """[T] or [B, T]; multiplies q . k, not the bias. Set by the extension `logn`."""
        if not self.logn:
            return None
        check_far("positions", positions)
        grown = jnp.log1p(positions.astype(jnp.float32)) / math.log(self.train_length)
        return jnp.maximum(1.0, grown)


class DistanceBias(Encoding):
    """An encoding whose bias depends on the distance query - key >= 0 alone.

    For tokens 0, 1, 2, ... attention may ask for the curve once instead of the bias, so a scheme of
    this kind overrides neither `bias` nor `positions`.
    """

    def curve(self, distance: jax.Array) -> jax.Array:  # [N] -> [H, N]
        raise NotImplementedError

    def straight(self) -> jax.Array | None:  # [H]
        """m, where the curve is -m * distance: kernels that take no bias can take that one."""
        return None

    def bias(self, q_positions, k_positions):
        check_far("positions", (q_positions, k_positions))
        # The values above the diagonal are masked, but their gradients must be finite too.
        distance = jnp.maximum(q_positions[..., :, None] - k_positions[..., None, :], 0)
        curve = self.curve(distance.reshape(-1))  # [H, N]
        return jnp.moveaxis(curve.reshape(-1, *distance.shape), 0, -3)


def check_reach(encoding: Encoding, length: int):
    reach = encoding.reach
    if reach is None or length <= reach:
        return
    raise ValueError(
        f"encoding {encoding.name!r} reaches {reach} positions, {length} were asked for; "
        f"{encoding.remedy}"
    )


def stack(encodings: Sequence[Encoding]) -> Encoding:
    """One encoding per layer, as one pytree whose leaves have a leading layer axis."""
    shared = [isinstance(e, Encoding) and e.layers is None for e in encodings]
    if not shared or not all(shared):
        raise ValueError("stack takes one shared encoding per layer, at least one, none stacked")
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


def layer(stacked: Encoding, index) -> Encoding:
    return jax.tree.map(lambda leaf: leaf[index], stacked).replace(layers=None)


def trained_mask(encoding: Encoding) -> Encoding:
    """The same tree with True where a leaf is trained."""
    fields = {}
    for field in dataclasses.fields(encoding):
        value = getattr(encoding, field.name)
        if isinstance(value, Encoding):
            fields[field.name] = trained_mask(value)
        elif field.metadata.get("pytree_node", True):
            is_trained = field.metadata.get("trained", False)
            fields[field.name] = jax.tree.map(lambda _, answer=is_trained: answer, value)
    return encoding.replace(**fields)


def partition(encoding: Encoding) -> tuple[Encoding, Encoding]:
    """(trained, fixed): the same tree twice, each with None for the leaves of the other.

    Whoever keeps an encoding in a module of their own hands the first to an optimizer and the
    second to nobody; `combine` makes the encoding of both again.
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
    """The encoding whose parts `partition` gave, with today's values of those that are trained."""
    return jax.tree.map(
        lambda one, other: other if one is None else one,
        trained,
        fixed,
        is_leaf=lambda leaf: leaf is None,
    )


def hold_fixed(encoding: Encoding) -> Encoding:
    """The same encoding, through which no gradient reaches a leaf that is not trained."""
    return jax.tree.map(
        lambda leaf, is_trained: leaf if is_trained else jax.lax.stop_gradient(leaf),
        encoding,
        trained_mask(encoding),
    )


def fixed(values) -> jax.Array:
    """Numbers worked out in float64 on the host, rounded once to float32."""
    return jnp.asarray(np.asarray(values, np.float64).astype(np.float32))


def check_far(name: str, positions) -> None:
    """That float32 tells positions apart, in one or several arrays, where values are known."""
    for part in jax.tree.leaves(positions):
        known = in_sight(part)
        if known is None or not known.size:
            continue
        for value in (known.min(), known.max()):
            if not -FARTHEST <= value <= FARTHEST:  # nor is it where it is not a number
                raise ValueError(
                    f"{name} must be finite and at most 2^24 = {FARTHEST:,} from 0: angles in "
                    f"float32 tell no others apart; got {value}"
                )


def in_sight(values) -> np.ndarray | None:
    """Values on the host; None where they are not known: in a trace, or on other processes."""
    for leaf in jax.tree.leaves(values):
        if isinstance(leaf, Tracer):
            return None
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return None
    return np.asarray(jax.device_get(values))
