"""`check_encoding` passes an encoding of one's own, and names what a wrong one lacks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS

import posenc_jax
from posenc_jax.encoding import DistanceBias, Encoding, trained
from posenc_jax.schemes import rope
from posenc_jax.testing import check_encoding


class Steep(DistanceBias):
    slope: jax.Array = trained()

    def curve(self, distance):  # the gradient of a root is infinite at distance 0
        return -jnp.sqrt(distance * jnp.exp(self.slope))[None, :] * jnp.ones((DIMS.heads, 1))


class Unused(DistanceBias):
    slope: jax.Array = trained()

    def curve(self, distance):
        return -jnp.ones((DIMS.heads, 1)) * distance[None, :]


class Backwards(Encoding):
    def embed(self, x, positions):
        return x + jnp.cumsum(x[:, ::-1], axis=1)[:, ::-1]


class Absolute(Encoding):
    def bias(self, q, k):  # which counts tokens of the call, not positions
        q, k = (getattr(side, "position", side) for side in (q, k))
        places = (jnp.arange(k.shape[-1]) / 8.0) ** 2
        return jnp.broadcast_to(places, (DIMS.heads, q.shape[-1], k.shape[-1]))


class Silent(Encoding):
    table: jax.Array


class Low(DistanceBias):
    def curve(self, distance):
        return jnp.exp(-distance.astype(jnp.bfloat16) / 8)[None, :] * jnp.ones((DIMS.heads, 1))


def of(kind, **arrays):
    return lambda dims: kind(dims=dims, **arrays)


def test_arrays_get_a_strong_type_at_the_door(monkeypatch):
    def build(dims, *, slope=1.0):
        return Silent(dims=dims, table={"weak": jnp.asarray(slope), "host": np.ones(2), "own": 2.0})

    monkeypatch.setattr("posenc_jax.schemes.rope.build", build)
    for leaf in jax.tree.leaves(posenc_jax.build("rope", DIMS)):
        assert leaf.dtype == jnp.float32 and not leaf.weak_type
    monkeypatch.setattr("posenc_jax.schemes.rope.build", lambda dims: 3)
    with pytest.raises(ValueError, match="build of encoding 'rope' must return an Encoding; got 3"):
        posenc_jax.build("rope", DIMS)


@pytest.mark.slow
def test_an_encoding_that_is_right_passes():
    check_encoding(rope.build, base=500.0)


@pytest.mark.parametrize(
    ("build", "lacks"),
    [
        (of(Steep, slope=jnp.zeros(())), "Gradients are finite"),
        (of(Unused, slope=jnp.zeros(())), "Gradients are finite, and not zero"),
        (of(Backwards), "on no later one"),
        (of(Absolute), "as if it stood alone"),
        (of(Silent, table=jnp.zeros(3, jnp.int32)), "Arrays are float32"),
        (of(Silent, table=jnp.zeros(3)), "depend on the order of the others"),
        (of(Low), "are float32 in a model of bfloat16"),
    ],
)
def test_a_wrong_encoding_is_told_what_it_lacks(build, lacks):
    with pytest.raises(Exception) as error:  # noqa: B017
        check_encoding(build)
    assert lacks in error.value.__notes__[0], error.value


def test_options_that_no_config_json_holds_are_refused():
    with pytest.raises(TypeError, match="not JSON serializable"):
        check_encoding(lambda dims, *, table: of(Silent, table=table)(dims), table=np.ones(2))
