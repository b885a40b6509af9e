"""Every encoding has a recipe, and every recipe builds and runs."""

import inspect
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import models
import posenc_jax
from posenc_jax import schemes

FOLDER = Path(__file__).parent.parent / "configs"


@pytest.mark.parametrize("name", schemes.names())
def test_every_encoding_has_a_recipe_that_runs(name):
    assert (FOLDER / f"{name}.py").exists(), "an encoding is one file in schemes, one in configs"
    recipe = import_module(f"configs.{name}")
    assert recipe.__doc__
    config = recipe.get_config()
    assert config.encoding.name == name
    model = models.Config.of(config.model)
    dims = posenc_jax.Dims(model.heads, model.head_size, model.width, config.train_length)
    options = {key: config.encoding[key] for key in config.encoding if key != "name"}
    encoding = posenc_jax.build(name, dims, jax.random.key(config.seed), **options)
    decoder = jax.eval_shape(lambda: models.Transformer(model, jax.random.key(0)))
    tokens = jax.ShapeDtypeStruct((1, config.train_length), jnp.int32)
    logits = jax.eval_shape(lambda m, t: m(t, encoding), decoder, tokens)
    assert logits.shape == (1, config.train_length, model.vocab)


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
    base = import_module("configs.base").get_config().model
    assert set(base) == set(models.Config.__dataclass_fields__)
    config, default = models.Config.of(base), models.Config()
    for field in ("head_size", "groups", "hidden_size"):
        assert getattr(config, field) == getattr(default, field)
    for field in set(base) - {"head_dim", "kv_heads", "hidden"}:
        assert base[field] == getattr(default, field), field
