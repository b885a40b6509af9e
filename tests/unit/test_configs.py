"""Every encoding has a recipe, and every recipe builds and runs."""

import inspect
import json
from importlib import import_module

import jax
import jax.numpy as jnp
import pytest
from running import ROOT

import models
import posenc_jax
from configs import base
from posenc_jax import (
    building,
    command,
    configuration,
    experiment,
    lineage,
    schemes,
    validation,
)
from posenc_jax.errors import ConfigError
from posenc_jax.evaluation import judging
from posenc_jax.lineage import FORMAT
from posenc_jax.runs import parameters
from posenc_jax.sweeping import jobs

pytestmark = pytest.mark.sampled


def said(config):
    """What is said without building, and where that is nothing, by building."""
    return validation.validate(config) or building.mistakes(lineage.resolved(config))


FOLDER = ROOT / "configs"


@pytest.mark.parametrize("name", schemes.names())
def test_every_encoding_has_a_recipe_that_runs(name):
    assert (FOLDER / f"{name}.py").exists(), "an encoding is one file in schemes, one in configs"
    recipe = import_module(f"configs.{name}")
    assert recipe.__doc__
    config = recipe.get_config()
    assert config.encoding.name == name
    assert said(config) == []
    config.model.vocab = 256
    parts = parameters.make(config)
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
    assert said(base.get_config(size)) == []
    with pytest.raises(ValueError, match="unknown size 'huge'; have: tiny, small"):
        base.get_config("huge")


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"encoding.name": "ropee"}, ["unknown encoding 'ropee'; did you mean 'rope'?"]),
        ({"encoding.fraction": 0.3}, ["fraction * head_dim must be an even number"]),
        ({"encoding.base": 0.0}, ["base must be a finite number above 1"]),
        ({"model.width": 130}, ["model.width must be a multiple of model.heads = 4"]),
        ({"model.kv_heads": 3}, ["model.heads must be a multiple of model.kv_heads = 3"]),
        ({"warmup_steps": -1}, ["warmup_steps must be a whole number of at least 0; got -1"]),
        ({"accumulate": 5}, ["batch_size must be a multiple of accumulate = 5; got 32"]),
        ({"learning_rate": float("nan")}, ["learning_rate must be a finite number above 0"]),
        ({"extension.scale": -1.0}, ["extension.scale must be a finite number above 0"]),
        ({"extension.name": "yran"}, ["unknown extension 'yran'; did you mean 'yarn'?"]),
        (
            {"extension.name": "clamp"},
            ["made for learned and does not fit encoding 'rope'; those that do: none"],
        ),
        ({"extension.name": "dynamic_ntk"}, ["train with 'ntk' and a scale"]),
        ({"extension.name": "dca"}, ["train with one that takes a scale, such as yarn, and leave"]),
        ({"data.source": "text"}, ["data.path must say what to read"]),
        ({"data.source": "disk"}, ["data.source must be one of 'stdlib', 'text'"]),
        ({"data.tokenizer": "no/such.json"}, ["there is no 'no/such.json'"]),
        (
            {"init_from": "no/run"},
            ["'no/run' holds no config.json that can be read: FileNotFoundError"],
        ),
        ({"seed": 2**64}, ["seed must be at most 9,223,372,036,854,775,807"]),
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
    problems = said(config)
    for message in messages:
        assert any(message in problem for problem in problems), problems


def test_a_replaced_subtree_is_found():
    config = import_module("configs.rope").get_config()
    with config.unlocked(), config.ignore_type():
        config.model = {"width": 64}
    assert "model.heads is missing" in "\n".join(said(config))


def test_a_learned_table_has_no_rows_for_a_longer_fine_tuning():
    config = import_module("configs.learned").get_config()
    config.original_length, config.train_length = 128, 512
    assert (
        "beyond the 128 positions that encoding 'learned' reaches; extend it with"
        in said(config)[0]
    )
    config.extension.name, config.extension.scale = "interpolate", 4.0
    assert said(config) == []


def test_a_field_that_an_older_run_lacks_is_one_that_is_none():
    config = import_module("configs.fox").get_config()
    assert config.encoding.bias_init is None
    older = config.copy_and_resolve_references()
    with older.unlocked():
        del older.encoding["bias_init"]
    assert experiment.experiment(older) == experiment.experiment(config)


def test_a_tuple_read_back_from_json_is_no_difference():
    config = import_module("configs.rope").get_config()
    before = config.to_dict() | {"extension": {"lambdas": [1.0, 2.0]}}
    after = config.to_dict() | {"extension": {"lambdas": (1.0, 2.0)}, "steps": 1}
    assert experiment.differences(before, after) == []
    changed = after | {"seed": 3}
    assert experiment.differences(before, changed) == ["seed: 0 in the workdir, 3 now"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"multiples": "1,2x"}, "each of multiples must be a finite number above 0; got '2x'"),
        ({"multiples": ""}, "each of multiples must be"),
        ({"extensions": "none,yran"}, "unknown extension 'yran'; did you mean 'yarn'?"),
        ({"extensions": "yarn:x"}, "the scale of yarn must be a finite number above 0; got 'x'"),
        ({"extensions": "yarn:0.5"}, "the scale of yarn must be at least 1"),
        ({"extensions": "dynamic_ntk:2"}, "dynamic_ntk takes no scale"),
        ({"extensions": "abf"}, "'abf' needs the option 'base'"),
        ({"protocols": "nonoverlapp"}, "unknown protocol 'nonoverlapp'; did you mean"),
        ({"documents": 0}, "documents must be a whole number of at least 2"),
        ({"windows": 0}, "windows must be a whole number of at least 1"),
        ({"data.path": "books"}, "data.path goes with data.source"),
        ({"data.source": "foo"}, "data.source must be one of"),
    ],
)
def test_every_mistake_in_an_evaluation_is_named(changes, message):
    config = import_module("configs.eval").get_config()
    assert judging.mistakes(config) == []
    for field, value in changes.items():
        group, _, name = field.rpartition(".")
        (config[group] if group else config)[name] = value
    assert message in "\n".join(judging.mistakes(config))


WITHOUT_EFFECT = [
    ({"data.path": "books/*.txt"}, "data.path = 'books/*.txt' has no effect with data.source=stdl"),
    ({"data.task": "copy"}, "data.task = 'copy' has no effect with data.source=stdlib"),
    ({"data.documents": 9}, "data.documents = 9 has no effect"),
    (
        {"data.source": "text", "data.path": "a", "data.hold_out": "package"},
        "data.hold_out = 'package' has no effect with data.source=text",
    ),
    ({"data.document_length": 9}, "data.document_length = 9 has no effect"),
    ({"data.split": "test"}, "data.split = 'test' has no effect"),
    ({"data.source": "text", "data.path": "a", "data.field": "body"}, "data.field = 'body' has no"),
    ({"data.source": "synthetic", "data.path": "a"}, "data.path = 'a' has no effect"),
    ({"extension.scale": 4.0}, "extension.scale = 4.0 has no effect with extension.name=none"),
    ({"extension.name": "logn", "extension.scale": 4.0}, "has no effect with extension.name=logn"),
]


@pytest.mark.parametrize(("fields", "message"), WITHOUT_EFFECT)
def test_fields_without_effect_are_refused(fields, message):
    config = import_module("configs.rope").get_config()
    config.update_from_flattened_dict(fields)
    assert message in "\n".join(said(config))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"data.field": "body"},
            "data.field = 'body' has no effect with data.source=''",
        ),
        ({"data.split": "test"}, "data.split = 'test' has no effect with data.source=''"),
        ({"stride": 16}, "stride = 16 has no effect without sliding in protocols"),
        ({"last": 4, "protocols": "position"}, "last = 4 has no effect without same_token"),
        ({"name": "a/b"}, "name must be letters, digits and"),
    ],
)
def test_fields_without_effect_are_refused_in_an_evaluation(fields, message):
    config = import_module("configs.eval").get_config()
    config.update_from_flattened_dict(fields)
    assert message in "\n".join(judging.mistakes(config))


@pytest.mark.parametrize("field", ["data.task", "data.field", "extension.scale", "data.documents"])
def test_an_axis_without_effect_is_no_sweep(field, tmp_path):
    values = {"data.task": ["copy", "passkey"], "data.field": ["text", "body"]}.get(field, [2, 3])
    grid = [{field: value} for value in values]
    found = jobs.jobs_of({"recipe": "configs/rope.py", "grid": grid}, tmp_path)
    with pytest.raises(ConfigError, match=f"2 of the jobs cannot run\n.*{field} = .* has no"):
        jobs.check(found)


def test_what_training_reads_stands_in_the_configuration():
    config = base.get_config()
    config.data.update(source="synthetic")
    data = lineage.resolved(config).data
    assert (data.task, data.documents, data.document_length) == ("copy", 2_000, 2_048)
    assert data.field is data.split is None


@pytest.fixture
def source(tmp_path):
    """The folder of a run of other sizes than the defaults."""
    config = import_module("configs.rope").get_config()
    config.encoding.base = 500_000.0
    config.update(train_length=64, batch_size=48, learning_rate=1e-3)
    config.model.update(width=96, kv_heads=2, activation="swiglu")
    config.data.update(source="jsonl", path="a.jsonl", field="body")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict() | {"format": FORMAT}))
    return tmp_path


def finetune(source, **fields):
    config = import_module("configs.finetune").get_config()
    config.init_from = str(source)
    config.update_from_flattened_dict(fields)
    return config


def test_a_fine_tuned_run_takes_model_encoding_text_and_lengths_from_its_source(source):
    config = finetune(source)
    assert said(config) == []
    made = lineage.resolved(config)
    assert (made.train_length, made.batch_size, made.learning_rate) == (256, 12, 2e-4)
    assert (made.model.width, made.model.kv_heads, made.model.activation) == (96, 2, "swiglu")
    assert (made.encoding.name, made.encoding.base) == ("rope", 500_000.0)
    assert (made.data.source, made.data.path, made.data.field) == ("jsonl", "a.jsonl", "body")
    assert made.extension.name == "yarn" and made.extension.scale == 4


def test_what_is_said_wins_over_the_source(source):
    fields = {"data.source": "stdlib", "train_length": 128, "learning_rate": 3e-4}
    made = lineage.resolved(finetune(source, **fields))
    assert (made.data.source, made.data.path, made.data.field) == ("stdlib", "", None)
    assert (made.train_length, made.batch_size, made.learning_rate) == (128, 24, 3e-4)


def test_a_length_beyond_what_the_extension_reaches_is_refused(source):
    (problem,) = said(finetune(source, train_length=512))
    assert "train_length = 512 is beyond scale x L = 4 x 64 = 256" in problem
    assert said(finetune(source, train_length=512, **{"extension.scale": 8.0})) == []


def test_a_recipe_that_goes_on_needs_a_run_to_go_on_from():
    (problem,) = said(import_module("configs.finetune").get_config())
    assert "init_from is missing" in problem and "--config.init_from=RUN" in problem


def test_weights_are_taken_from_a_run_of_the_same_model_and_encoding(tmp_path):
    source = import_module("configs.rope").get_config()
    source.encoding.base = 500_000.0
    (tmp_path / "config.json").write_text(json.dumps(source.to_dict() | {"format": FORMAT}))
    config = import_module("configs.finetune").get_config()
    config.init_from = str(tmp_path)
    assert said(config) == []
    assert lineage.resolved(config).encoding.base == 500_000.0
    config.model.activation = "swiglu"
    (problem,) = said(config)
    assert "model.activation is 'gelu' in" in problem and "'swiglu' here" in problem


def test_positions_are_drawn_around_the_encoding_of_the_run_that_goes_on(tmp_path):
    source = import_module("configs.rope").get_config()
    config = import_module("configs.randomized_yarn").get_config()
    config.init_from = str(tmp_path)
    config.train_length = config.encoding.inner_length = source.train_length
    (tmp_path / "config.json").write_text(json.dumps(source.to_dict() | {"format": FORMAT}))
    assert said(config) == []
    encoding = building.plain(lineage.resolved(config), jax.random.key(0))
    assert (encoding.train_length, encoding.max_position) == (128, 1024)
    config.encoding.base = 500_000.0
    (problem,) = said(config)
    assert "encoding.base is 10000.0 in" in problem and "500000.0 here" in problem


def with_extension(recipe="rope", **fields):
    config = import_module(f"configs.{recipe}").get_config()
    with config.ignore_type():
        config.extension.update(fields)
    return config


def test_options_of_an_extension_stand_in_its_name_or_beside_it():
    inside = lineage.resolved(with_extension(name="yarn:8:beta_fast=16"))
    words = ["train.py", "--config=configs/rope.py", "--config.extension.name=yarn"]
    words += ["--config.extension.scale=8", "--config.extension.beta_fast=16"]
    beside = lineage.resolved(command.parse(words)[1])
    assert inside.extension == beside.extension
    assert inside.extension.to_dict() == {"name": "yarn", "scale": 8, "beta_fast": 16}
    assert experiment.differences(inside.to_dict(), beside.to_dict()) == []
    assert said(inside) == said(beside) == []
    composed = lineage.resolved(with_extension(name="yarn:8:beta_fast=16+logn"))
    assert composed.extension.to_dict() == {"name": "yarn:beta_fast=16+logn", "scale": 8}
    assert lineage.resolved(composed).extension == composed.extension
    assert said(composed) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "yarn:8", "scale": 4.0}, "give different scales"),
        ({"name": "yarn:beta_fast=8", "beta_fast": 16.0}, "sets 'beta_fast' a second time"),
        ({"name": "yarn:8:4"}, "has two scales"),
        ({"name": "yarn+ntk", "scale": 2.0}, "of one kind, rotation"),
        ({"name": "yarn+dynamic_ntk", "scale": 2.0}, "of one kind, rotation"),
        ({"name": "dynamic_ntk+logn"}, "'dynamic_ntk' follows the length read; train with 'ntk'"),
        ({"name": "logn+window", "scale": 2.0}, "extension.scale = 2.0 has no effect"),
        ({"name": "yarn", "beta_fats": 1}, "did you mean 'beta_fast'?"),
        ({"name": "none", "beta_fast": 1}, "extension 'none' takes no options; got 'beta_fast'"),
        ({"name": "yarn", "scale": 2.0, "beta_fast": -1, "ramp": "steep"}, "ramp must be one of"),
    ],
)
def test_what_an_extension_cannot_be_is_refused(fields, message):
    assert message in "\n".join(said(with_extension(**fields)))


def test_everything_that_building_says_is_said_at_once():
    config = import_module("configs.t5").get_config()
    config.encoding.num_buckets, config.encoding.scale = 7, -1.0
    config.extension.name = "yran"
    told = "\n".join(said(config))
    for part in ("num_buckets must be even", "scale must be a finite", "unknown extension 'yran'"):
        assert part in told


def test_help_lists_every_field_with_its_default():
    for described, config in (
        (configuration.Training, configuration.training()),
        (configuration.Evaluation, configuration.evaluation()),
    ):
        lines = [line.strip() for line in configuration.explained(described, "--config.")]
        lines = [line for line in lines if line.startswith("--config.")]
        shown = dict(line.removeprefix("--config.").split("=", 1) for line in lines)
        flat = {
            f"{group}.{name}" if isinstance(value, dict) else group: default
            for group, value in config.to_dict().items()
            for name, default in (value if isinstance(value, dict) else {"": value}).items()
        }
        assert shown == {name: str(default) for name, default in flat.items()}


def test_an_evaluation_from_python_is_judged_as_from_the_command_line(tmp_path):
    with pytest.raises(ConfigError, match="stride = 16 has no effect without sliding"):
        posenc_jax.evaluate(tmp_path, {"stride": 16})
