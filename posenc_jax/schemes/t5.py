"""A learned bias per head and distance bucket."""

import math
from bisect import bisect_left

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import positive, token_count, whole_number
from posenc_jax.encoding import Dims, DistanceBias, check_far, static, trained


class T5(DistanceBias):
    """Raffel et al. 2019, arXiv:1910.10683. The bias is `scale` times the table.

    T5 does not divide logits by sqrt(K). Here they are divided, so the table is multiplied by
    sqrt(K): otherwise it could not move far enough in a short training run.
    """

    table: jax.Array = trained()  # [buckets, H]; initial standard deviation 0.2
    max_distance: int = static(default=128)
    scale: float = static(default=1.0)

    def curve(self, distance):
        buckets = bucket(distance, self.table.shape[0], self.max_distance)
        return self.scale * self.table[buckets].T


def bucket(distance, num_buckets: int = 32, max_distance: int = 128) -> jax.Array:
    """Return the bucket of each distance >= 0: exact below num_buckets / 2, then logarithmic."""
    check_far("distance", distance)
    edges = jnp.asarray(_edges(num_buckets, max_distance))
    return jnp.searchsorted(edges, jnp.asarray(distance), side="right").astype(jnp.int32)


def _edges(num_buckets: int, max_distance: int) -> np.ndarray:  # [num_buckets - 1]
    """Return the smallest distance of each bucket but the first.

    floor(ln(d/h) / ln(m/h) * h) >= j is computed as d^h * h^j >= m^j * h^h in integers, so that
    no rounding moves a distance across an edge.
    """
    num_buckets = whole_number("num_buckets", num_buckets, at_least=2, at_most=1024)
    max_distance = token_count("max_distance", max_distance)
    if num_buckets % 2 or max_distance <= num_buckets // 2:
        raise ValueError(
            "num_buckets must be even and max_distance above num_buckets / 2; "
            f"got num_buckets={num_buckets}, max_distance={max_distance}"
        )
    half = num_buckets // 2

    def reaches(step):
        return lambda d: d**half * half**step >= max_distance**step * half**half

    distances = range(half, max_distance + 1)
    steps = [distances[bisect_left(distances, True, key=reaches(step))] for step in range(1, half)]
    return np.array([*range(1, half + 1), *steps], np.int32)


def build(
    dims: Dims,
    key: jax.Array,
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    scale: float | None = None,
) -> T5:
    """Build the table; scale=None is sqrt(K)."""
    _edges(num_buckets, max_distance)  # checks the sizes
    scale = math.sqrt(dims.head_dim) if scale is None else positive("scale", scale)
    table = 0.2 * jax.random.normal(key, (num_buckets, dims.heads))
    return T5(dims=dims, table=table, max_distance=int(max_distance), scale=scale)
