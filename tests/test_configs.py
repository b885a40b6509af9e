"""Every encoding has a recipe, and every recipe builds and runs."""

import inspect
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import models
from configs import base
from posenc_jax import catalog, configuration, extensions, schemes
from posenc_jax.training import parts as making

FOLDER = Path(__file__).parent.parent / "configs"


@pytest.mark.parametrize("name", schemes.names())
def test_every_encoding_has_a_recipe_that_runs(name):
    assert (FOLDER / f"{name}.py").exists(), "an encoding is one file in schemes, one in configs"
    recipe = import_module(f"configs.{name}")
    assert recipe.__doc__
    config = recipe.get_config()
    assert config.encoding.name == name
    assert configuration.validate(config) == []
    config.model.vocab = 256
    parts = making.make(config)
    tokens = jax.ShapeDtypeStruct((1, config.train_length), jnp.int32)
    logits = jax.eval_shape(lambda t: parts.model(t, parts.encoding), tokens)
    assert logits.shape == (1, config.train_length, 256)


@pytest.mark.parametrize("name", schemes.names())
def test_a_recipe_lists_the_options_of_its_encoding_with_their_defaults(name):
    """So that each of them can be set on the command line."""
    encoding = import_module(f"configs.{name}").get_config().encoding
    parameters = inspect.signature(schemes.find(name).build).parameters.values()
    for option in (p for p in parameters if p.kind is p.KEYWORD_ONLY):
        assert option.name in encoding
        if option.default is not None:
            assert encoding[option.name] == option.default


def test_the_defaults_of_the_model_are_those_of_the_decoder():
    given = base.get_config().model
    assert set(given) == set(models.Config.__dataclass_fields__)
    for field in set(given) - {"vocab"}:
        assert given[field] == getattr(models.Config(), field), field


@pytest.mark.parametrize("size", base.SIZES)
def test_every_size_is_valid(size):
    assert configuration.validate(base.get_config(size)) == []
    with pytest.raises(ValueError, match="unknown size 'huge'; have: tiny, small"):
        base.get_config("huge")


def test_the_catalog_reads_what_the_modules_hold():
    assert set(catalog.extensions()) == set(extensions.EXTENSIONS)
    for name, made_for in catalog.extensions().items():
        kinds = extensions.EXTENSIONS[name].fits
        assert [k.__module__.rpartition(".")[2] for k in kinds] == [made_for or "encoding"]
    for name in catalog.encodings():
        parameters = inspect.signature(schemes.find(name).build).parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            keywords = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
            assert catalog.encoding_options(name) == keywords


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"encoding.name": "ropee"}, ["unknown encoding 'ropee'; did you mean 'rope'?"]),
        ({"encoding.fraction": 0.3}, ["fraction * head_dim must be an even number"]),
        ({"encoding.base": 0.0}, ["encoding.base must be a finite number above 1"]),
        ({"model.width": 130}, ["model.width must be a multiple of model.heads = 4"]),
        ({"model.kv_heads": 3}, ["model.heads must be a multiple of model.kv_heads = 3"]),
        ({"warmup_steps": 601}, ["warmup_steps must not exceed steps = 600; got 601"]),
        ({"accumulate": 5}, ["batch_size must be a multiple of accumulate = 5; got 32"]),
        ({"learning_rate": float("nan")}, ["learning_rate must be a finite number above 0"]),
        ({"extension.scale": -1.0}, ["extension.scale must be a finite number above 0"]),
        ({"extension.name": "yran"}, ["unknown extension 'yran'; did you mean 'yarn'?"]),
        (
            {"extension.name": "clamp"},
            ["does not fit encoding 'rope'; those that do: none"],
        ),
        ({"extension.name": "dynamic_ntk"}, ["train with 'ntk' and a scale"]),
        ({"data.source": "text"}, ["data.path must say what to read"]),
        ({"data.source": "disk"}, ["data.source must be one of 'stdlib', 'text'"]),
        ({"data.tokenizer": "no/such"}, ["there is no 'no/such'"]),
        (
            {"init_from": "no/run"},
            ["'no/run' holds no config.json that can be read (FileNotFoundError)"],
        ),
        ({"seed": 2**64}, ["seed must be below 2^63"]),
        ({"beta1": 1.0}, ["beta1 must be a number from 0 to"]),
        ({"wandb.mode": "None"}, ["wandb.mode must be one of"]),
        ({"train_length": 1}, ["train_length must be at least 2"]),
        ({"model.width": 0, "steps": 0}, ["steps must be", "model.width must be"]),
    ],
)
def test_every_mistake_is_named_at_once(changes, messages):
    config = import_module("configs.rope").get_config()
    for field, value in changes.items():
        group, _, name = field.rpartition(".")
        with (config[group] if group else config).ignore_type():
            (config[group] if group else config)[name] = value
    problems = configuration.validate(config)
    for message in messages:
        assert any(message in problem for problem in problems), problems


def test_a_replaced_subtree_is_found():
    config = import_module("configs.rope").get_config()
    with config.unlocked(), config.ignore_type():
        config.model = {"width": 64}
    assert "model.heads is missing" in "\n".join(configuration.validate(config))


def test_a_learned_table_has_no_rows_for_a_longer_fine_tuning():
    config = import_module("configs.learned").get_config()
    config.original_length, config.train_length = 128, 512
    assert "beyond the 128 rows" in configuration.validate(config)[0]
    config.extension.name, config.extension.scale = "interpolate", 4.0
    assert configuration.validate(config) == []


def test_a_tuple_read_back_from_json_is_no_difference():
    config = import_module("configs.rope").get_config()
    before = config.to_dict() | {"extension": {"lambdas": [1.0, 2.0]}}
    after = config.to_dict() | {"extension": {"lambdas": (1.0, 2.0)}, "steps": 1}
    assert configuration.differences(before, after) == []
    changed = after | {"seed": 3}
    assert configuration.differences(before, changed) == ["seed: 0 in the workdir, 3 now"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"multiples": "1,2x"}, "each of multiples must be a finite number above 0; got '2x'"),
        ({"multiples": ""}, "each of multiples must be"),
        ({"extensions": "none,yran"}, "unknown extension 'yran'; did you mean 'yarn'?"),
        ({"extensions": "yarn:x"}, "the scale of yarn must be a finite number"),
        ({"extensions": "yarn:0.5"}, "the scale of yarn must be at least 1"),
        ({"extensions": "dynamic_ntk:2"}, "dynamic_ntk has a scale of its own or none"),
        ({"extensions": "abf"}, "'abf' needs options"),
        ({"protocols": "nonoverlapp"}, "unknown protocol 'nonoverlapp'; did you mean"),
        ({"documents": 0}, "documents must be a whole number of at least 2"),
        ({"windows": 0}, "windows must be a whole number of at least 1"),
        ({"data.path": "books"}, "data.path goes with data.source"),
        ({"data.source": "foo"}, "data.source must be one of"),
    ],
)
def test_every_mistake_in_an_evaluation_is_named(changes, message):
    config = import_module("configs.eval").get_config()
    assert configuration.validate_evaluation(config) == []
    for field, value in changes.items():
        group, _, name = field.rpartition(".")
        (config[group] if group else config)[name] = value
    assert message in "\n".join(configuration.validate_evaluation(config))


def test_weights_are_taken_from_a_run_of_the_same_model_and_encoding(tmp_path):
    source = import_module("configs.rope").get_config()
    source.encoding.base = 500_000.0
    (tmp_path / "config.json").write_text(configuration.as_json(source))
    config = import_module("configs.finetune").get_config()
    config.init_from = str(tmp_path)
    assert configuration.validate(config) == []
    assert configuration.resolved(config).encoding.base == 500_000.0
    config.model.activation = "swiglu"
    (problem,) = configuration.validate(config)
    assert "model.activation is 'gelu' in" in problem and "'swiglu' here" in problem
