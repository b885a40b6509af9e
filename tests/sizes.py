"""The sizes of the small model that most tests use, and recipes of that size."""

from importlib import import_module

from configured import run_of

from posenc_jax.encoding import Dims

L = 16
VOCAB = 19
DIMS = Dims(heads=4, head_dim=8, width=32, train_length=L)


def config_of(name, **fields):
    """The run of a recipe made small; fields are flattened, `model.layers`."""
    config = import_module(f"configs.{name}").get_config()
    config.model.update(width=16, heads=2, layers=2, vocab=31)
    config.update(train_length=L, batch_size=4, steps=20, warmup_steps=2)
    config.update_from_flattened_dict(fields)
    return run_of(config)
