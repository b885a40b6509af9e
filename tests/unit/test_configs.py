"""Every encoding has a recipe, and every recipe builds and runs."""

import dataclasses
import json
import re
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configured import problems_of, source_of
from ml_collections import ConfigDict
from running import ROOT

import posenc_jax
from configs import base
from posenc_jax import schemes
from posenc_jax.config import building, check, compare, environment, flags, load, resolve, schema
from posenc_jax.config.resolve import FORMAT
from posenc_jax.data import sources
from posenc_jax.runs import parameters
from posenc_jax.runtime import terminal
from posenc_jax.runtime.errors import ConfigError, Stop


def recipe_of(name):
    return import_module(f"configs.{name}").get_config()


@pytest.mark.sampled
@pytest.mark.parametrize("name", schemes.names())
def test_every_encoding_has_a_recipe_that_runs(name):
    file = ROOT / "configs" / f"{name}.py"
    assert file.exists(), "an encoding is one file in schemes, one in configs"
    config = recipe_of(name)
    assert config.encoding.name == name
    assert problems_of(config) == []
    run = load(config)
    assert set(run.encoding.options) >= set(schemes.options_of(name))
    parts = parameters.make(run)
    tokens = jax.ShapeDtypeStruct((1, config.train_length), jnp.int32)
    logits = jax.eval_shape(lambda t: parts.model(t, parts.encoding), tokens)
    assert logits.shape == (1, config.train_length, 256)


@pytest.mark.parametrize("size", base.SIZES)
def test_every_size_is_valid(size):
    assert problems_of(base.get_config(size)) == []
    with pytest.raises(ValueError, match="unknown size 'huge'; have: tiny, small"):
        base.get_config("huge")


WITHOUT_EFFECT = [
    ({"data.path": "books/*.txt"}, "data.path = 'books/*.txt' has no effect with data.source=stdl"),
    ({"data.prefix": 1, "model.bos": True}, "data.prefix has no effect with model.bos"),
    (
        {"data.source": "synthetic", "data.task": "needle", "data.gaps": "log"},
        "data.gaps = 'log' has no effect with data.task=needle",
    ),
    ({"extension.scale": 4.0}, "extension.scale = 4.0 has no effect with extension.name=none"),
    ({"extension.name": "logn", "extension.scale": 4.0}, "has no effect with extension.name=logn"),
]


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"encoding.name": "ropee"}, ["unknown encoding 'ropee'; did you mean 'rope'?"]),
        ({"encoding.fraction": 0.3}, ["fraction * head_dim must be an even number"]),
        (
            {"encoding.base": 0.0, "extension.name": "yran"},
            ["base must be a finite number above 1", "unknown extension 'yran'"],
        ),
        ({"model.width": 130}, ["model.width must be a multiple of model.heads = 4"]),
        ({"model.kv_heads": 3}, ["model.heads must be a multiple of model.kv_heads = 3"]),
        ({"encoding.name": "cope", "model.score_cap": 2.0}, ["'cope' has its own attention"]),
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
        ({"data.source": "disk"}, ["data.source must be one of 'hub', 'jsonl'"]),
        ({"data.tokenizer": "no/such.json"}, ["there is no 'no/such.json'"]),
        (
            {"init_from": "no/run"},
            ["'no/run' holds no config.json that can be read: FileNotFoundError"],
        ),
        ({"seed": 2**63}, ["seed must be at most 9,223,372,036,854,775,807; got 9,223,372,036,85"]),
        *(
            ({"label": label}, ["label must be a line of printable letters, 80 at most; got "])
            for label in ("a\nb", "a\x1b[31mb", "a\u202eb", 81 * "a")
        ),
        ({"profile": "13,10"}, ["profile must be FIRST,LAST: two steps, such as 10,13"]),
        ({"profile": "10,601"}, ["profile = '10,601': the run has 600 steps"]),
        ({"optimizer": "moun"}, ["optimizer must be one of"]),
        ({"beta1": 1.0}, ["beta1 must be a number from 0 to"]),
        ({"wandb.mode": "None"}, ["wandb.mode must be one of"]),
        ({"train_length": 1}, ["train_length must be at least 2"]),
        (
            {"train_length": "64", "data.source": "synthetic", "data.task": "variables"},
            ["train_length must be a whole number of at least 1; got '64'"],
        ),
        ({"model.width": 0, "steps": 0}, ["steps must be", "model.width must be"]),
        ({"weight_decay": 1e20}, ["must be a number from 0 to 1000000.0; got 1e+20"]),
        ({"clip": 1e-320}, ["clip must be a number from 1e-30"]),
        ({"extension.scale": 1e300}, ["extension.scale must be a number from"]),
        *((fields, [message]) for fields, message in WITHOUT_EFFECT),
    ],
)
def test_validation_reports_every_mistake(changes, messages):
    problems = problems_of(posenc_jax.recipe("rope", changes))
    assert len("\n".join(problems)) < 2_000
    for message in messages:
        assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize("lengths", ["128,２５６", "1_28", "128,+2_56"])
def test_only_ascii_digits_are_numbers(lengths):
    config = schema.evaluation()
    config.lengths = lengths
    (mistake,) = check.mistakes_in_evaluation(config.to_dict())
    assert mistake.startswith("each of lengths must be a whole number of at least 2; got '")


def test_missing_fields_of_a_replaced_subtree_are_reported():
    config = recipe_of("rope")
    with config.unlocked(), config.ignore_type():
        config.model = {"width": 64}
    assert "model.heads" not in config
    for lacking in (config, recipe_of("finetune")):
        (problem,) = problems_of(lacking)
        assert "init_from is missing" in problem and "--config.init_from=RUN" in problem


def test_fine_tuning_beyond_a_learned_table_needs_an_extension():
    config = posenc_jax.recipe("learned", {"original_length": 128, "train_length": 512})
    message = "beyond the 128 positions that encoding 'learned' reaches; extend it with"
    assert message in problems_of(config)[0]
    config.extension.name, config.extension.scale = "interpolate", 4.0
    assert problems_of(config) == []


def test_a_run_that_lacks_a_field_has_its_default(tmp_path):
    run = load(recipe_of("fox"))
    fields = schema.as_fields(run) | {"format": FORMAT}
    del fields["clip"], fields["wandb"], fields["data"]["mask_documents"], fields["model"]["bos"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert resolve.saved_config(tmp_path) == run


def test_a_tuple_read_back_from_json_is_no_difference():
    recipe = recipe_of("rope")
    recipe.extension = ConfigDict({"name": "longrope", "scale": 2.0, "lambdas": (1.0, 2.0)})
    run = schema.from_fields(resolve.resolve(recipe.to_dict()))
    again = schema.from_fields(json.loads(json.dumps(schema.as_fields(run))))
    assert compare.differences(run, dataclasses.replace(again, steps=1)) == []
    changed = dataclasses.replace(again, seed=3)
    assert compare.differences(run, changed) == ["seed: 0 in the workdir, 3 now"]


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
        ({"extensions": "yran,all:3"}, "\n'all' takes no scale; got 'all:3'"),  # two at once
        ({"protocols": "nonoverlapp"}, "unknown protocol 'nonoverlapp'; did you mean"),
        ({"documents": 0}, "documents must be a whole number of at least 2"),
        ({"windows": 0}, "windows must be a whole number of at least 1"),
        ({"data.path": "books"}, "data.path = 'books' has no effect without a data.source"),
        ({"data.source": "foo"}, "data.source must be one of"),
        ({"data.field": "body"}, "data.field = 'body' has no effect without a data.source"),
        ({"data.tokens": ".", "data.begins": "#"}, "data.begins = '#' has no effect with data.tok"),
        ({"stride": 16}, "stride = 16 has no effect without sliding in protocols"),
        ({"last": 4, "protocols": "position"}, "last = 4 has no effect without same_token"),
        ({"name": "a/b"}, "name must be letters, digits and"),
        ({"windows": 10**20}, "windows must be at most 2,147,483,647"),
        ({"documents": 10**20}, "documents must be at most"),
        ({"tokens_per_call": 10**20}, "tokens_per_call must be at most"),
        ({"extensions": "yarn:1e300"}, "the scale of yarn must be at least 1 and at most 1e6"),
        ({"multiples": [1, 2]}, "multiples must be text"),
        ({"lengths": 512}, "lengths must be text"),
    ],
)
def test_mistakes_in_an_evaluation_are_refused_also_from_python(changes, message, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(message)):
        posenc_jax.evaluate(tmp_path, changes)


def test_the_resolved_config_holds_the_defaults_of_the_source():
    config = base.get_config()
    config.data.update(source="synthetic")
    data = schema.as_fields(load(config))["data"]
    assert (data["task"], data["documents"], data["document_length"]) == ("copy", 2_000, 2_048)
    assert not {"field", "split", "path"} & set(data)


def write_run(folder, recipe):
    """The configuration of a run, as training writes it."""
    fields = schema.as_fields(load(recipe)) | {"format": FORMAT}
    (folder / "config.json").write_text(json.dumps(fields))


@pytest.fixture
def source(tmp_path):
    """Folder of a run whose sizes differ from the defaults."""
    config = recipe_of("rope")
    config.encoding.base = 500_000.0
    config.update(train_length=64, batch_size=48, learning_rate=1e-3)
    config.model.update(width=96, kv_heads=2, activation="swiglu")
    config.data.update(source="jsonl", path="a.jsonl", field="body")
    write_run(tmp_path, config)
    return tmp_path


def finetune(source, **fields):
    return posenc_jax.recipe("finetune", {"init_from": str(source)} | fields)


def test_fine_tuning_inherits_model_encoding_text_and_lengths(source):
    config = finetune(source)
    assert problems_of(config) == []
    made = load(config)
    assert (made.train_length, made.batch_size, made.learning_rate) == (256, 12, 2e-4)
    assert (made.model.width, made.model.kv_heads, made.model.activation) == (96, 2, "swiglu")
    assert (made.encoding.name, made.encoding.options["base"]) == ("rope", 500_000.0)
    text = made.data.source
    assert (text.kind(), text.path, text.field) == ("jsonl", "a.jsonl", "body")
    assert made.extension.name == "yarn" and made.extension.scale == 4


def test_explicit_fields_override_the_source_run(source):
    fields = {"data.source": "stdlib", "train_length": 128, "learning_rate": 3e-4}
    made = load(finetune(source, **fields))
    assert made.data.source == source_of()
    assert (made.train_length, made.batch_size, made.learning_rate) == (128, 24, 3e-4)


def test_a_length_beyond_what_the_extension_reaches_is_refused(source):
    problem, missing = problems_of(finetune(source, train_length=512))
    assert "a.jsonl" in missing  # listed beside other mistakes only
    assert "train_length = 512 is beyond scale x L = 4 x 64 = 256" in problem
    assert problems_of(finetune(source, train_length=512, **{"extension.scale": 8.0})) == []
    within = finetune(source, **{"extension.scale": 3.31})
    assert problems_of(within) == [] and load(within).train_length == 211  # of 211.84


def test_init_from_requires_the_same_model_and_encoding(source):
    problem, _ = problems_of(finetune(source, **{"model.activation": "gelu"}))  # and a.jsonl
    assert "model.activation: 'swiglu' in" in problem and "'gelu' here" in problem


def test_a_scale_counts_from_the_plain_encoding_of_an_extended_run(tmp_path):
    write_run(tmp_path, with_extension(name="pi:2"))
    before = load(with_extension(name="pi:2"))
    L = before.train_length
    again = load(finetune(tmp_path))
    assert (again.extension.name, again.extension.scale) == ("yarn", 4)
    assert (again.original_length, again.train_length) == (L, 4 * L)
    longer = load(finetune(tmp_path, original_length=2 * L))  # a remedy for a misstated L
    assert (longer.original_length, longer.train_length) == (2 * L, 8 * L)
    kept = load(finetune(tmp_path, **{"extension.name": "none"}))
    assert kept.extension == before.extension and kept.train_length == L  # as it was trained


def test_an_option_beside_the_extension_that_stays_is_refused(tmp_path):
    write_run(tmp_path, with_extension(name="yarn:2"))
    fields = {"extension.name": "none", "extension.beta_fast": 8.0}
    (problem,) = problems_of(finetune(tmp_path, **fields))
    assert "extension.beta_fast has no effect with extension.name=none" in problem


def test_a_resampled_table_keeps_its_extension(tmp_path):
    write_run(tmp_path, with_extension("learned", name="interpolate:2"))
    (problem,) = problems_of(finetune(tmp_path, **{"extension.name": "clamp"}))
    assert f"the table of {tmp_path} is that of 'interpolate'; keep it" in problem
    assert problems_of(finetune(tmp_path, **{"extension.name": "none"})) == []


def test_randomized_fine_tuning_wraps_the_encoding_of_the_source_run(tmp_path):
    source = recipe_of("rope")
    config = recipe_of("randomized_yarn")
    config.init_from = str(tmp_path)
    config.train_length = config.encoding.inner_length = source.train_length
    write_run(tmp_path, source)
    assert problems_of(config) == []
    encoding = building.plain(load(config), jax.random.key(0))
    assert (encoding.train_length, encoding.max_position) == (128, 1024)
    config.encoding.base = 500_000.0
    (problem,) = problems_of(config)
    assert "encoding.base: 10000.0 in" in problem and "500000.0 here" in problem


def with_extension(recipe="rope", **fields):
    config = recipe_of(recipe)
    with config.ignore_type():
        config.extension.update(fields)
    return config


def test_options_of_an_extension_stand_in_its_name_or_beside_it():
    inside = load(with_extension(name="yarn:8:beta_fast=16"))
    words = ["train.py", "--config=configs/rope.py", "--config.extension.name=yarn"]
    words += ["--config.extension.scale=8", "--config.extension.beta_fast=16"]
    beside = load(flags.parse(words)[1])
    assert inside.extension == beside.extension
    extension = inside.extension
    assert (extension.name, extension.scale, extension.options) == ("yarn", 8, {"beta_fast": 16})
    assert compare.differences(inside, beside) == []
    composed = load(with_extension(name="yarn:8:beta_fast=16+logn"))
    extension = composed.extension
    assert (extension.name, extension.scale) == ("yarn:beta_fast=16+logn", 8)
    assert load(schema.as_fields(composed)).extension == extension


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "yarn:8", "scale": 4.0}, "give different scales"),
        ({"name": "yarn:beta_fast=8", "beta_fast": 16.0}, "sets 'beta_fast' a second time"),
        ({"name": "topk:k=8"}, "'topk' is for evaluations; train without it"),
        ({"name": "dynamic_ntk+logn"}, "'dynamic_ntk' follows the length read; train with 'ntk'"),
        ({"name": "logn+window", "scale": 2.0}, "extension.scale = 2.0 has no effect"),
        ({"name": "none", "beta_fast": 1}, "extension 'none' takes no options; got 'beta_fast'"),
    ],
)
def test_mistakes_in_an_extension_are_refused(fields, message):
    assert message in "\n".join(problems_of(with_extension(**fields)))


def test_options_of_an_inner_encoding_are_not_held_against_another_one():
    config = posenc_jax.recipe("dape", {"encoding.inner": "cope"})
    assert problems_of(config) == ["inner must not have its own attention; got 'cope'"]


def test_help_lists_every_field_with_its_default_and_its_type():
    both = (schema.Training, schema.training()), (schema.Evaluation, schema.evaluation())
    for described, recipe in both:
        listed = list(schema.explained(described, "--config."))
        lines = [line.strip() for line in listed if line.startswith("  --config.")]
        shown = dict(line.removeprefix("--config.").split("=", 1) for line in lines)
        usual = {name: str(value) for name, value in schema.flat(recipe).items()}
        for line, below in zip(listed, listed[1:], strict=False):
            if line.startswith("  --config."):
                assert re.match(r" {6}(str|int|float|bool): \S", below), line
        options = {f"data.{option}" for option in sources.every_option()}
        assert {name: shown.pop(name) for name in usual} == usual
        assert set(shown) == (options - set(usual) if described is schema.Training else set())


@pytest.mark.parametrize(
    ("name", "window"), [("hybrid", 16), ("hybrid_nope", 32), ("hybrid_bases", 16)]
)
def test_a_hybrid_of_two_layers_has_a_global_one(name, window):
    run = load(import_module("configs.ordered").get_config(name))
    encoding = parameters.blank(run).encoding
    assert [encoding.layer(index).window for index in range(2)] == [window, None]


@pytest.mark.parametrize("name", ["mla", "llama_small"])
def test_a_recipe_with_a_model_of_its_own_is_no_encoding(name):
    with pytest.raises(ConfigError, match=f"configs/{name}.py sets a model of its own"):
        import_module("configs.variables").get_config(name)


def test_attention_may_be_computed_in_another_way(source):
    config = finetune(source, **{"model.attention": "plain"})
    assert problems_of(config) == []
    run = load(base.get_config())
    other = dataclasses.replace(run, model=dataclasses.replace(run.model, attention="kernel"))
    assert compare.differences(run, other) == []
    assert parameters.readable(other).model.attention == "auto"


def test_fields_from_python_may_be_groups_and_numbers_of_numpy():
    fields = {"seed": np.int64(2**63 - 1), "data": {"source": "text", "path": "a.txt"}}
    config = posenc_jax.recipe("rope", fields)
    assert type(config.seed) is int and config.data.tokenizer == "bytes"
    assert load(config).data.source.path == "a.txt"


def test_an_evaluation_of_no_run_leaves_nothing(tmp_path):
    with pytest.raises(Stop, match="is not the workdir of a run"):
        posenc_jax.evaluate(tmp_path, {"multiples": "1"})
    assert not list(tmp_path.iterdir())


def test_the_home_folder_is_where_its_sign_says(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert environment.workdir_of("~/runs/rope") == "/somewhere/runs/rope"
    assert environment.workdir_of("runs/rope") == "runs/rope"
    parser = terminal.parser("a program")
    parser.add_argument("--workdir", type=Path)
    assert parser.parse_args(["--workdir=~/sweep"]).workdir == Path("/somewhere/sweep")
