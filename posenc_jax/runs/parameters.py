"""The model and encoding of a configuration, and their trained arrays as plain dictionaries."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import jax

import posenc_jax
from posenc_jax import neighbours, schemes
from posenc_jax.attention.kernels import PLATFORMS
from posenc_jax.configuration import original_length
from posenc_jax.encoding import Dims, Encoding, trained_mask
from posenc_jax.errors import ConfigError, Stop

if TYPE_CHECKING:
    import models
else:
    models = neighbours.models()

Params = dict[str, dict[str, jax.Array]]  # {"model": {path: array}, "encoding": {path: array}}


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a run is made of. Arrays that are trained are taken out and put in by name."""

    model: models.Transformer
    encoding: Encoding

    def params(self) -> Params:
        return {"model": by_path(self.model), "encoding": trained_arrays(self.encoding)}

    def counts(self) -> dict[str, int]:
        """How many numbers are trained, by group."""
        groups = {
            name: sum(leaf.size for leaf in arrays.values())
            for name, arrays in self.params().items()
        }
        return groups | {"total": sum(groups.values())}

    def replace(self, params: Params) -> "Parts":
        return Parts(
            with_leaves(self.model, params["model"]), with_leaves(self.encoding, params["encoding"])
        )


def make(config, *, extended: bool = True, start: Params | None = None) -> Parts:
    """A model and an encoding, drawn from the seed or from `start`, then with the run's extension.

    A table is taken over before it is resampled, so the extension comes last.
    """
    model_key, encoding_key = jax.random.split(key_of(config.seed))
    settings = models.Config.of(dict(config.model))
    model = jax.jit(lambda key: models.Transformer(settings, key))(model_key)
    parts = Parts(model, _plain(config, settings, encoding_key))
    if start is not None:
        parts = parts.replace(start)
    return Parts(parts.model, _extended(config, parts.encoding)) if extended else parts


def key_of(seed: int) -> jax.Array:
    """A key of its own for every seed below 2^63; jax.random.key keeps the low 32 bits alone."""
    key, high = jax.random.key(seed % 2**32), seed >> 32
    if not high:
        return key
    # Steps are folded into a run's key too, and all of them are below 2^31.
    return jax.random.fold_in(key, 2**31 + high)


def check(config) -> None:
    """What only the scheme and the extension themselves can judge of their options."""
    fields = {name: value for name, value in dict(config.model).items() if name != "vocab"}
    try:
        plain = _plain(config, models.Config.of(fields), jax.random.key(0))
    except ValueError as error:
        if not _said_here(error):
            kept = os.environ.get("JAX_COMPILATION_CACHE_DIR")
            raise Stop(
                f"jax failed before anything was trained: {error}. A compiled program that it "
                f"keeps may be damaged; delete {kept} and try again"
            ) from error
        raise ConfigError(str(error)) from error
    wrong = _wrong_options(config, plain)
    if wrong:
        raise ConfigError("; ".join(wrong))
    if config.model.attention == "kernel" and jax.default_backend() not in PLATFORMS:
        raise ConfigError(
            f"model.attention = 'kernel' needs one of {', '.join(PLATFORMS)}, this process runs on "
            f"{jax.default_backend()}; take auto, plain or blockwise"
        )


def _said_here(error: BaseException) -> bool:
    """Whether an error is one of our rules, rather than one from below."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    names = (__name__.partition(".")[0], models.__name__)
    return trace is not None and trace.tb_frame.f_globals["__name__"].startswith(names)


def _wrong_options(config, plain: Encoding) -> list[str]:
    """What the extension says of each of its options alone, and of all of them together."""
    name, scale = config.extension.name, float(config.extension.scale)
    given = {n: v for n, v in config.extension.items() if n not in ("name", "scale")}
    options = {name: value for name, value in given.items() if value is not None}
    said: dict[str, None] = {}
    for some in [*({n: v} for n, v in options.items()), options]:
        try:
            posenc_jax.extend(name, plain, scale, **some)
        except ValueError as error:
            if some == options or " needs the option " not in str(error):
                said[str(error)] = None
    return list(said)


def _plain(config, settings: models.Config, key: jax.Array) -> Encoding:
    options = dict(config.encoding)
    name, per_layer = options.pop("name"), options.pop("per_layer", False)
    dims = Dims(
        settings.heads,
        settings.head_size,
        settings.width,
        original_length(config),
        settings.layers,
    )
    build = schemes.build_per_layer if per_layer else schemes.build
    return build(name, dims, key, **options)


def _extended(config, encoding: Encoding) -> Encoding:
    options = {name: value for name, value in config.extension.items() if value is not None}
    name, scale = options.pop("name"), float(options.pop("scale"))
    return posenc_jax.extend(name, encoding, scale, **options)


def trained_arrays(encoding: Encoding) -> dict[str, jax.Array]:
    mask = jax.tree.leaves(trained_mask(encoding))
    pairs = zip(by_path(encoding).items(), mask, strict=True)
    return {path: leaf for (path, leaf), is_trained in pairs if is_trained}


def by_path(tree: Any) -> dict[str, jax.Array]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves}


def with_leaves(tree: Any, new: dict[str, Any]) -> Any:
    """The tree with the leaves that are named replaced."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [_name(path) for path, _ in leaves]
    unknown = set(new) - set(names)
    if unknown:
        raise ValueError(f"no such arrays: {sorted(unknown)}; have: {names}")
    merged = [new.get(name, leaf) for name, (_, leaf) in zip(names, leaves, strict=True)]
    return jax.tree.unflatten(structure, merged)


def _name(path) -> str:
    """`blocks.attention.q.kernel`; how Flax wraps a parameter is not part of its name."""
    words = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
    return ".".join(word for word in words if word != "value")
