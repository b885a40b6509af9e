"""Encodings by name, and errors of wrong options."""

import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, config_of

import posenc_jax
from posenc_jax import schemes
from posenc_jax.encoding import Dims
from posenc_jax.runs import parameters
from posenc_jax.runtime.errors import ConfigError

KEY = jax.random.key(0)
TWO = Dims(4, 8, 32, 16, layers=2)
DECAY = {"pattern": "decay,global"}
# No option has these values; FAR is beyond every bound.
FAR = 10**12
WRONG = {bool: [1], int: [-1, 1.5, FAR], float: [float("nan"), "x"], str: ["no such word"]}


REFUSED = {
    "ropee": [({}, r"unknown encoding 'ropee'; did you mean 'rope'\? have: alibi, cope, ")],
    "_rotation": [({}, "unknown encoding '_rotation'")],
    "": [({}, "unknown encoding ''; have: alibi")],
    "rope": [
        ({"bass": 1}, r"unknown option of encoding 'rope': 'bass'; did you mean 'base'\?"),
        ({"base": 0.0}, "base must be a finite number above 1; got 0.0"),
        ({"base": 1e39}, "base must be a number from 1 to 1e\\+30"),
        ({"base": [1e4, 1e4]}, "base must be one number or one per head, 4; got 2 numbers"),
        ({"fraction": 0.4}, r"must be an even number from 2 to head_dim = 8; got 0.4 \* 8"),
        ({"fraction": 0.125}, r"got 0.125 \* 8 = 1"),
        ({"fraction": 2.0}, r"got 2 \* 8 = 16"),
        (
            {"fraction": 0.25, "dims": Dims(4, 8, 32, 16, rotary_dim=4)},
            r"from 2 to rotary_dim = 4; got 0.25 \* 4 = 1",
        ),
        ({"dims": (4, 8, 32, 16)}, "dims must be a posenc_jax.Dims"),
        ({"sink": 1}, "sink must be True, False or 'token'; got 1"),
        ({"dims": Dims(4, 7, 28, 16)}, r"got 1 \* 7 = 7"),
        ({"keep": 1.5}, "keep must be 'turned' or a number from 0 to 1; got 1.5"),
        ({"keep": True}, "keep must be 'turned' or a number from 0 to 1; got True"),
        ({"frequencies": "trained", "per": "token"}, "per must be one of 'none', 'layer', 'head'"),
        ({"per": "head"}, "per='head' has no effect without frequencies='trained'"),
        ({"frequencies": "trained", "per": "layer"}, "per='layer' needs the number of layers"),
    ],
    "nope": [({"base": 1}, "encoding 'nope' takes no options; got 'base'")],
    "randomized": [
        ({"max_positon": 64}, r"'max_positon'; did you mean 'max_position'\?"),
        ({"inner": "randomized"}, "inner must be another encoding"),
        ({"inner": "alibbi"}, r"'alibbi'; did you mean 'alibi'\?"),
        ({"max_position": 3}, "max_position must be a whole number of at least 16"),
        ({"inner": "t5", "key": None}, "'t5' has trained fields"),
        ({"inner": "xpos", "max_position": 100_000}, "'xpos' reaches 68555"),
        ({"inner": "t5", "bass": 1}, "'t5': 'bass'"),
    ],
    "xpos": [({"fraction": 0.3}, "must be an even number")],
    "t5": [
        ({"num_buckets": 7}, "num_buckets must be even and max_distance above num_buckets / 2"),
        ({"num_buckets": 32, "max_distance": 16}, "max_distance above num_buckets / 2"),
        ({"scale": -1}, "scale must be a finite number above 0; got -1"),
    ],
    "sandwich": [({"dbar": 5}, "dbar must be even; got 5")],
    "stick_breaking": [({"sink": True}, "'stick_breaking', which has its own attention")],
    "alibi": [
        ({"slopes": [0.5]}, "slopes must be"),
        ({"slopes": [0.5, 0.0, 1.0, 1.0]}, "slopes must be"),
        ({"slopes": 3}, "slopes must be"),
    ],
    "fox": [
        ({"gate": "fixed", "bias_init": 5.0}, "bias_init = 5.0 has no effect with gate='fixed'"),
        ({"inner": "alibi"}, "inner must have no bias, .* and no trained arrays, .*; got 'alibi'"),
        ({"inner": "learned"}, "inner must have no bias, .* no trained arrays, .*; got 'learned'"),
        ({"inner": "stick_breaking"}, "no attention of its own .*; got 'stick_breaking'"),
        ({"inner": "hybrid:pattern=decay/global"}, "no attention of its own .*; got 'hybrid:"),
        ({"inner": "rope", "bass": 1}, "inner 'rope': 'bass'; did you mean 'base'"),
        ({"gatte": "full"}, "'gatte'; did you mean 'gate'"),
    ],
    "dape": [
        ({"inner": "dape"}, "inner must be another encoding; got 'dape'"),
        ({"inner": "cope"}, "inner must not have its own attention; got 'cope'"),
        ({"inner": "hybrid:pattern=decay/global"}, "not have its own attention; got 'hybrid:"),
        ({"inner": "rope", "bass": 1}, "inner 'rope': 'bass'; did you mean 'base'"),
    ],
    "selective_rope": [
        ({"base": 1.0}, "base must be"),
        ({"steps": "random", "gate": True}, "gate has no effect with steps='random'"),
        ({"seed": 1}, "seed has no effect with steps='learned'"),
        ({"dims": Dims(3, 8, 32, 16)}, "width = 32 must be a multiple of heads = 3"),
    ],
    "ssmax": [
        ({"kind": "llama4", "bias": True}, "bias=True has no effect with kind='llama4'"),
        ({"a": 0.2}, "a = 0.2 has no effect with kind='trained'"),
        ({"kind": "llama4", "a": 0.0}, "a must be a finite number above 0"),
        ({"inner": "ssmax"}, "inner must be another encoding; got 'ssmax'"),
        ({"inner": "ropee"}, "unknown encoding 'ropee'; did you mean 'rope'"),
        ({"inner": "rope:4"}, "inner must be one encoding"),
        ({"inner": "rope+logn"}, "inner must be one encoding"),
        ({"inner": "fire:hiden=4"}, "'hiden'; did you mean 'hidden'"),
        ({"inner": "fire:hidden=4", "hidden": 4}, "hidden is set twice, in .* and as an option"),
        ({"widht": 4}, "option of 'ssmax' or of its inner 'rope': 'widht'"),
        ({"layers": "global"}, "unknown kind of layers of the inner 'rope': 'global'"),
        ({"inner": "hybrid", "layers": "far"}, "'far'; have: global, local"),
        (
            {"inner": "randomized:inner=alibi", "kind": "inkling"},
            "which random positions do not give",
        ),
        ({"dims": Dims(2, 4, 8, 1)}, "needs a train_length of at least 2"),
        ({"inner": "hybrid", "pattern": "local", "layers": "global"}, "layers"),
        ({"inner": "retention"}, "no effect on inner 'retention': the norm of retention cancels"),
        (DECAY | {"inner": "hybrid", "layers": "decay"}, "the norm of retention"),
    ],
    "hybrid": [
        ({"global_base": 1e6}, "global_base = 1000000.0 has no effect without global_rope=True"),
        ({"global_keep": 0.25}, "global_keep = 0.25 has no effect without global_rope=True"),
        (DECAY | {"base": 5e5}, "base = 500000.0 has no effect without global"),
        ({"global_rope": True, "global_base": 0.5}, "base must be a finite number above 1"),
        ({"local_base": -2.0}, "base must be a finite number above 1"),
        ({"pattern": ["local", 3]}, "unknown layer of a pattern: '3'"),
        ({"pattern": "global", "window": 3}, "window = 3 has no effect: there is no local layer"),
        ({"pattern": "global", "chunked": True}, "chunked = True has no effect: there is no local"),
        (
            {"pattern": "local", "global_rope": True},
            "global_rope = True has no effect: there is no",
        ),
        ({"window": 0, "chunked": True}, "at least 1 with chunked=True"),
        ({"dims": TWO}, "has no global layer in a model of 2"),
        (DECAY | {"sink": True}, "'hybrid', which has its own attention"),
        ({"pattern": "local,lokal"}, "layer of a pattern: 'lokal'; did you mean 'local'"),
        ({"pattern": []}, "got none"),
        ({"pattern": 2.5}, "^pattern must be a list of local, global and decay; got 2.5$"),
    ],
}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [(name, *case) for name, cases in REFUSED.items() for case in cases],
)
def test_wrong_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        posenc_jax.build(name, **{"dims": DIMS, "key": KEY} | options)


@pytest.mark.parametrize("name", schemes.names())
def test_every_option_is_checked(name):
    for option, parameter in schemes.options_of(name).items():
        kinds = typing.get_args(parameter.annotation) or [parameter.annotation]
        for value in [value for kind in kinds for value in WRONG.get(kind, [])]:
            with pytest.raises(ValueError) as caught:
                posenc_jax.build(name, DIMS, KEY, **{option: value})
            message = str(caught.value)
            assert option.rpartition("_")[2] in message or repr(value) in message


def test_typed_and_raw_keys_build_the_same_encoding():
    typed, raw = (posenc_jax.build("fire", DIMS, key=k) for k in (KEY, jax.random.PRNGKey(0)))
    assert all(map(np.array_equal, jax.tree.leaves(typed), jax.tree.leaves(raw)))


def test_an_encoding_per_layer_is_drawn_for_each_or_refused():
    t5 = schemes.build_per_layer("t5", TWO, KEY)
    assert t5.layers == 2 and t5.table.shape == (2, 32, 4) and np.any(t5.table[0] != t5.table[1])
    for name, reason in (("rope", "has no trained arrays"), ("learned", "which all layers share")):
        message = f"per_layer = True has no effect: .*{name}.* {reason}"
        with pytest.raises(ConfigError, match=message):
            parameters.check(config_of(name, **{"encoding.per_layer": True}))


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
    slopes = schemes.alibi.slopes(np.int64(4))
    assert list(slopes) == [0.25, 0.0625, 0.015625, 0.00390625]
    buckets = schemes.t5.bucket(np.arange(300), np.int64(32), np.int64(128))
    assert int(buckets[-1]) == 31 and int(buckets[40]) == 23
    for wrong in ((7, 16), (0, 16), (32, 8)):
        with pytest.raises(ValueError, match="num_buckets|max_distance"):
            schemes.t5.bucket(5, *wrong)
    dims = posenc_jax.Dims(np.int64(4), np.int32(8), 32, 16)
    rope = posenc_jax.build("rope", dims, base=np.array([1e2, 1e3, 1e4, 1e5]))
    assert rope.inv_freq.shape == (4, 4)


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
