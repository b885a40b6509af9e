"""Model and encoding of a configuration, and their trained arrays as plain dictionaries."""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh

import models
from posenc_jax.attention.several import PLATFORMS
from posenc_jax.checks import whole_number
from posenc_jax.config import Training, building
from posenc_jax.encoding import Encoding, trained_mask
from posenc_jax.runtime import devices
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.runtime.trees import by_path, with_leaves

Params = dict[str, dict[str, jax.Array]]  # {"model": {path: array}, "encoding": {path: array}}


@dataclasses.dataclass(frozen=True)
class Parts:
    """Model and encoding of a run, whose trained arrays can be read and replaced by name."""

    model: models.Model
    encoding: Encoding

    def params(self) -> Params:
        return {"model": by_path(self.model), "encoding": trained_arrays(self.encoding)}

    def counts(self) -> dict[str, int]:
        """Count the parameters by group."""
        groups = {
            name: sum(leaf.size for leaf in arrays.values())
            for name, arrays in self.params().items()
        }
        return groups | {"total": sum(groups.values())}

    def replace(self, params: Params) -> "Parts":
        return Parts(
            with_leaves(self.model, params["model"]), with_leaves(self.encoding, params["encoding"])
        )


def make(config: Training, mesh: Mesh | None = None) -> Parts:
    """Make model and encoding from the seed; over a mesh each device makes its share."""
    plain = unextended(config)
    model = with_leaves(plain.model, from_seed(config, by_path(plain.model), mesh))
    return extended(config, Parts(model, plain.encoding))


def from_seed(
    config: Training, shapes: dict[str, Any], mesh: Mesh | None = None
) -> dict[str, jax.Array]:
    """These arrays of the model, from the seed."""

    def arrays(key):
        made = by_path(models.make(config.model, key))
        return {name: made[name] for name in shapes}

    model_key, _ = jax.random.split(key_of(config.seed))
    placed = None if mesh is None else devices.shardings(shapes, mesh, config.sharding)
    return jax.jit(arrays, out_shardings=placed)(model_key)


def extended(config: Training, plain: Parts) -> Parts:
    """The parts with the run's own extension."""
    return Parts(plain.model, building.extended(config, plain.encoding))


def blank(config: Training) -> Parts:
    """The parts of a run to be read: shapes instead of the model's arrays, until they replace
    them."""
    return extended(config, unextended(config))


def unextended(config: Training) -> Parts:
    """The same without the run's extension."""
    shapes = jax.eval_shape(lambda: models.make(config.model, key_of(0)))
    return Parts(shapes, first_encoding(config))


def first_encoding(config: Training) -> Encoding:
    """The encoding that a run begins with, without its extension and without `init_from`."""
    _, encoding_key = jax.random.split(key_of(config.seed))
    return building.plain(config, encoding_key)


def key_of(seed: int) -> jax.Array:
    """Return a distinct key for every seed below 2^63; jax.random.key keeps only the low 32 bits.

    The generator is fixed, so JAX_DEFAULT_PRNG_IMPL has no effect.
    """
    whole_number("seed", seed, at_least=0, at_most=2**63 - 1)
    key, high = jax.random.key(seed % 2**32, impl="threefry2x32"), seed >> 32
    if not high:
        return key
    # Steps, which are folded into a run's key too, are below 2^31.
    return jax.random.fold_in(key, 2**31 + high)


def check(config: Training) -> None:
    """Check what only a run that trains must have, what the devices judge, and the encoding of a
    distributed run, which is not built before its processes have met."""
    if (config.trains or config.model.lora is not None) and not config.init_from:
        raise ConfigError("trains and model.lora leave weights as they are: give init_from=RUN")
    if config.distributed and (problems := building.mistakes(config)):
        raise ConfigError(*problems)
    devices.check(config.sequence)
    rows, shares = config.batch_size // config.accumulate, jax.device_count() // config.sequence
    if rows % shares:
        raise ConfigError(
            f"batch_size / accumulate = {rows} must be a multiple of devices / sequence = {shares}"
        )
    if config.model.attention == "kernel" and jax.default_backend() not in PLATFORMS:
        raise ConfigError(
            f"model.attention = 'kernel' needs one of {', '.join(PLATFORMS)}, but this process "
            f"runs on {jax.default_backend()}; use auto, plain or blockwise"
        )


def with_vocab(config: Training, vocab: int) -> Training:
    """The configuration with the vocabulary of its tokenizer, unless it has a larger one."""
    if config.model.vocab is not None and config.model.vocab < vocab:
        raise DataError(
            f"model.vocab = {config.model.vocab} is less than the {vocab} tokens of the tokenizer"
        )
    model = dataclasses.replace(config.model, vocab=config.model.vocab or vocab)
    prefix = config.data.prefix
    if prefix is not None and prefix >= model.vocab_size:
        raise ConfigError(
            f"data.prefix = {prefix} is not a token of the vocabulary, which has {model.vocab_size}"
        )
    return dataclasses.replace(config, model=model)


def readable(config: Training) -> Training:
    """The configuration of a run that is read here: kernels run on some devices alone."""
    if config.model.attention != "kernel" or jax.default_backend() in PLATFORMS:
        return config
    return dataclasses.replace(config, model=dataclasses.replace(config.model, attention="auto"))


def on_device(
    params: dict[str, dict[str, Any]], mesh: Mesh | None = None, sharding: str = "replicated"
) -> Params:
    """Move arrays to the device one by one, out of `params`, so that each is held once; those of
    the model to the devices of a mesh."""

    def place(group: str, leaf) -> jax.Array:
        if mesh is None or group != "model":
            return jax.device_put(leaf)
        return devices.placed(leaf, mesh, sharding)

    return {
        group: {n: jax.block_until_ready(place(group, arrays.pop(n))) for n in list(arrays)}
        for group, arrays in params.items()
    }


def on_host(params: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave the model's arrays on the host; an extension may compute with the encoding's."""
    return params | on_device({"encoding": params["encoding"]})


def trained_arrays(encoding: Encoding) -> dict[str, jax.Array]:
    mask = jax.tree.leaves(trained_mask(encoding))
    pairs = zip(by_path(encoding).items(), mask, strict=True)
    return {path: leaf for (path, leaf), is_trained in pairs if is_trained}
