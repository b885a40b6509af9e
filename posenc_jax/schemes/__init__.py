"""Encodings, one per file: the file name is the encoding's name; `_` marks other files.

A scheme's module defines `build(dims, *, options)`, or `build(dims, key, *, options)` if it has
trained fields. A name with a dot is that of a module of one's own.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import composition, registry
from posenc_jax.checks import check_options, known
from posenc_jax.encoding import Dims, Encoding, trained_mask
from posenc_jax.layers import one_per_layer, overrides
from posenc_jax.registry import encodings as names
from posenc_jax.schemes._sink import with_sink

registry.keep_names(__name__)


def build(
    name: str, dims: Dims, key: jax.Array | None = None, *, sink: bool | str = False, **options
) -> Encoding:
    """Build an encoding by name; those with trained fields need a key.

    `sink` adds a trained logit without a value to every softmax, per layer and head, and "token"
    one that depends on the query's token.
    """
    return with_sink(_build(name, dims, key, **options), dims, sink)


def _build(name: str, dims: Dims, key: jax.Array | None, **options) -> Encoding:
    if not isinstance(dims, Dims):
        raise ValueError(f"dims must be a posenc_jax.Dims; got {dims!r}")
    encoding = built(name, find(name).build, dims, key, options)
    return encoding.replace(own_name=name) if "." in name else encoding


def built(name: str, builder: Callable, dims: Dims, key: jax.Array | None, options) -> Encoding:
    """Call the `build` of a scheme, whose arrays get a strong type: a weak one recompiles."""
    check_options(f"encoding {name!r}", builder, options)
    key_parameter = inspect.signature(builder).parameters.get("key")
    if key is None and key_parameter and key_parameter.default is inspect.Parameter.empty:
        raise ValueError(
            f"encoding {name!r} has trained fields: build it with key=jax.random.key(...)"
        )
    encoding = builder(*([dims] if key_parameter is None else [dims, key]), **options)
    if not isinstance(encoding, Encoding):
        raise ValueError(f"build of encoding {name!r} must return an Encoding; got {encoding!r}")
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), encoding)


def build_inner(
    outer: str,
    outer_options: Sequence[str],
    inner: str,
    dims: Dims,
    key: jax.Array | None,
    inner_options: Mapping[str, Any],
) -> Encoding:
    """Build the inner encoding of an outer one that takes the options `outer_options`.

    `inner` may carry options itself, as in `fire:hidden=16`.
    """
    name, options = _parse(inner)
    if name == outer:
        raise ValueError(f"inner must be another encoding; got {outer!r}")
    allowed = [*outer_options, *options_of(name)]
    for option in inner_options:
        known(f"option of {outer!r} or of its inner {name!r}:", option, allowed)
    duplicates = sorted(set(options) & set(inner_options))
    if duplicates:
        raise ValueError(f"{duplicates[0]} is set twice, in inner={inner!r} and as an option")
    return build(name, dims, key, **options, **inner_options)


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """Return the options of an encoding by name, without those of its inner encoding."""
    parameters = inspect.signature(find(name).build).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}


def takes_inner(name: str) -> bool:
    """True if an encoding is built around another one, named by the option `inner`."""
    parameters = inspect.signature(find(name).build).parameters.values()
    return any(p.kind is p.VAR_KEYWORD for p in parameters)


def _parse(inner: str) -> tuple[str, Mapping[str, Any]]:
    """Split `fire:hidden=16` into the name of an encoding and its options."""
    parts = composition.parts(inner)
    if len(parts) > 1 or parts[0].scale is not None:
        raise ValueError(
            f"inner must be one encoding, such as 'fire' or 'fire:hidden=16'; got {inner!r}"
        )
    return parts[0].name, parts[0].options


def build_per_layer(
    name: str, dims: Dims, key: jax.Array, *, sink: bool | str = False, **options
) -> Encoding:
    """Build one encoding per layer, each from its own key."""
    return with_sink(_build_per_layer(name, dims, key, **options), dims, sink)


def _build_per_layer(name: str, dims: Dims, key: jax.Array, **options) -> Encoding:
    encoding = _build(name, dims, key, **options)
    if not any(jax.tree.leaves(trained_mask(encoding))):
        raise ValueError(
            f"encoding.per_layer = True has no effect: encoding {name!r} has no trained arrays"
        )
    if overrides(encoding, "embed"):
        raise ValueError(
            f"encoding.per_layer = True has no effect: encoding {name!r} is added to the token "
            "embeddings, which all layers share"
        )
    _, shared = encoding.by_layer()
    if encoding.depth is not None and not any(jax.tree.leaves(trained_mask(shared))):
        return encoding  # every trained array is per layer already
    assert key is not None  # trained arrays need one
    single = dataclasses.replace(dims, layers=None)
    return one_per_layer(lambda layer_key: _build(name, single, layer_key, **options), dims, key)


def find(name: str) -> ModuleType:
    return registry.find("encoding", name)


def __getattr__(name):
    if name.startswith("_") or name not in names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
