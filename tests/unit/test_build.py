"""Encodings by name, and errors of wrong options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS

import posenc_jax
from posenc_jax import schemes

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ropee", {}, r"unknown encoding 'ropee'; did you mean 'rope'\? have: alibi, cope, "),
        ("_rotation", {}, "unknown encoding '_rotation'"),
        ("", {}, "unknown encoding ''; have: alibi"),
        ("rope", {"bass": 1}, r"unknown option of encoding 'rope': 'bass'; did you mean 'base'\?"),
        ("nope", {"base": 1}, "encoding 'nope' takes no options; got 'base'"),
        ("rope", {"base": 0.0}, "base must be a finite number above 1; got 0.0"),
        ("rope", {"base": 1e39}, "base must be a number from 1 to 1e\\+30"),
        ("randomized", {"max_positon": 64}, r"'max_positon'; did you mean 'max_position'\?"),
        ("rope", {"base": float("nan")}, "base must be a finite number"),
        ("rope", {"base": [1e4, 1e4]}, "base must be one number or one per head, 4; got 2 numbers"),
        ("rope", {"fraction": 0.4}, r"must be an even number from 2 to head_dim = 8; got 0.4 \* 8"),
        ("rope", {"fraction": 0.125}, r"got 0.125 \* 8 = 1"),
        ("rope", {"fraction": 2.0}, r"got 2 \* 8 = 16"),
        ("rope", {"layout": "halves"}, "layout must be one of 'half', 'interleaved'; got 'halves'"),
        ("xpos", {"fraction": 0.3}, "must be an even number"),
        (
            "t5",
            {"num_buckets": 7},
            "num_buckets must be even and max_distance above num_buckets / 2",
        ),
        ("t5", {"num_buckets": 32, "max_distance": 16}, "max_distance above num_buckets / 2"),
        ("t5", {"num_buckets": 0}, "num_buckets must be a whole number of at least 2; got 0"),
        ("sandwich", {"dbar": 5}, "dbar must be even; got 5"),
        ("fire", {"hidden": 0}, "hidden must be a whole number of at least 1; got 0"),
        ("randomized", {"inner": "randomized"}, "inner must be another encoding"),
        ("randomized", {"inner": "alibbi"}, r"'alibbi'; did you mean 'alibi'\?"),
        ("randomized", {"max_position": 3}, "max_position must be a whole number of at least 16"),
        ("randomized", {"evenly": 1}, "evenly must be True or False; got 1"),
        ("randomized", {"inner": "xpos", "max_position": 100_000}, "'xpos' reaches 68555"),
    ],
)
def test_wrong_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        posenc_jax.build(name, DIMS, key=KEY, **options)


def test_rope_refuses_odd_head_sizes():
    with pytest.raises(ValueError, match=r"got 1 \* 7 = 7"):
        posenc_jax.build("rope", posenc_jax.Dims(4, 7, 28, 16))


@pytest.mark.parametrize("field", ["heads", "head_dim", "width", "train_length"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True])
def test_dims_are_positive_whole_numbers(field, value):
    fields = {"heads": 4, "head_dim": 8, "width": 32, "train_length": 16} | {field: value}
    with pytest.raises(ValueError, match=f"{field} must be a whole number of at least 1"):
        posenc_jax.Dims(**fields)


@pytest.mark.parametrize("name", schemes.names())
def test_a_key_is_required_exactly_for_random_initialisation(name):
    first, second = (
        jax.tree.leaves(posenc_jax.build(name, DIMS, key=jax.random.key(i))) for i in (0, 1)
    )
    if any(jnp.any(a != b) for a, b in zip(first, second, strict=True)):
        with pytest.raises(ValueError, match=f"'{name}' has trained fields"):
            posenc_jax.build(name, DIMS)
    else:
        without_key = jax.tree.leaves(posenc_jax.build(name, DIMS))
        assert all(jnp.array_equal(a, b) for a, b in zip(first, without_key, strict=True))


def test_numpy_numbers_are_valid_options():
    slopes = posenc_jax.schemes.alibi.slopes(np.int64(4))
    assert list(slopes) == [0.25, 0.0625, 0.015625, 0.00390625]
    buckets = posenc_jax.schemes.t5.bucket(np.arange(300), np.int64(32), np.int64(128))
    assert int(buckets[-1]) == 31 and int(buckets[40]) == 23
    dims = posenc_jax.Dims(np.int64(4), np.int32(8), 32, 16)
    rope = posenc_jax.build("rope", dims, base=np.array([1e2, 1e3, 1e4, 1e5]))
    assert rope.inv_freq.shape == (4, 4)


def test_invalid_t5_buckets_are_refused():
    for buckets, distance in ((7, 16), (0, 16), (32, 8)):
        with pytest.raises(ValueError, match="num_buckets|max_distance"):
            posenc_jax.schemes.t5.bucket(5, buckets, distance)


def test_a_tuple_instead_of_dims_is_refused():
    with pytest.raises(ValueError, match="dims must be a posenc_jax.Dims"):
        posenc_jax.build("rope", (4, 8, 32, 16))  # pyright: ignore


def test_randomized_requires_the_key_of_its_inner_encoding():
    with pytest.raises(ValueError, match="'t5' has trained fields"):
        posenc_jax.build("randomized", DIMS, inner="t5")


def test_a_learned_table_inside_randomized_covers_max_position():
    learned = posenc_jax.build("randomized", DIMS, key=KEY, inner="learned", max_position=50)
    assert learned.reach == 50 and learned.train_length == 50 and learned.dims.train_length == 16


def test_public_names_resolve():
    assert posenc_jax.schemes.alibi.slopes(8)[0] == 0.5
    assert int(posenc_jax.schemes.t5.bucket(40)) == 21 + 2
    with pytest.raises(AttributeError):
        posenc_jax.schemes.no_such_scheme  # noqa: B018
    with pytest.raises(AttributeError):
        posenc_jax.no_such_name  # noqa: B018
    for name in posenc_jax.__all__:
        assert getattr(posenc_jax, name) is not None
    assert set(posenc_jax.__all__) <= set(dir(posenc_jax))
