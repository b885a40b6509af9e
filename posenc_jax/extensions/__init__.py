"""Context extensions: functions from a trained encoding to one with other numbers.

Each `Extension` in a file of this folder is one, named after its function; files that start with
`_` contain none. `yarn:8:beta_fast=16+logn` composes two; `posenc_jax.composition` parses it.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from posenc_jax import composition, registry, schemes
from posenc_jax.checks import LARGEST_SCALE, check_options, known, positive, token_count
from posenc_jax.composition import Part
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.extensions import distance
from posenc_jax.extensions._record import Extension, extension
from posenc_jax.extensions.any_encoding import is_scalable
from posenc_jax.extensions.rotary import turns

__all__ = ["Extension", "distances", "extend", "extension", "fitting", "named", "records", "turns"]

registry.keep_names(__name__)

ALL = "all"  # kinds of layers
# Options that set a factor on logits.
_FACTORS = {"attention_factor", "coefficient", "frequency_scale"}
_ORDER = ("given", "read", "none")  # extensions with a scale come first


@cache
def records() -> Mapping[str, Extension]:
    """Return all extensions by name."""
    by_name: dict[str, Extension] = {}
    for file in registry.files("extensions"):
        for record in vars(import_module(f"{__name__}.{file}")).values():
            if isinstance(record, Extension) and by_name.setdefault(record.name, record) != record:
                raise ValueError(f"two extensions are named {record.name!r}, one in {file}.py")
    # `none` first, then extensions of one scheme: the order of lists, evaluations and plots.
    return dict(
        sorted(by_name.items(), key=lambda item: (item[0] != "none", item[1].of is Encoding))
    )


def find(name: str) -> Extension:
    """Return an extension by name: with a dot, the function of a module of one's own or the one in
    it, as `my_pkg.slowed` or `my_pkg.several.slowed`."""
    if "." not in name:
        return records()[known("extension", name, records())]
    place, _, last = name.rpartition(".")
    try:
        place, module = name, registry.own("extension", name)
    except ValueError:
        module = registry.own("extension", place)
    found = {one.name: one for one in vars(module).values() if isinstance(one, Extension)}
    record = found.get(last) or (place == name and len(found) == 1 and [*found.values()][0])
    if not record:
        have = ", ".join(f"{place}.{one}" for one in found) or "none"
        raise ValueError(f"unknown extension {name!r}; module {place} has: {have}")
    return dataclasses.replace(record, name=name)


def named(text: str) -> list[tuple[Extension, Part]]:
    """Parse a composition into pairs of extension and text; those with a scale come first."""
    chosen = []
    for part in composition.parts(text):
        chosen.append((find(part.name), part))
    for i, (record, _) in enumerate(chosen):
        for other, _ in chosen[:i]:
            for kind in set(record.kinds) & set(other.kinds):
                raise ValueError(
                    f"{text!r} composes {other.name!r} and {record.name!r}, which both change the "
                    f"{kind.name}; use one of them"
                )
            if "none" in (record.name, other.name):
                raise ValueError(f"'none' cannot be composed with others; got {text!r}")
    scales = [part.scale for _, part in chosen if part.scale is not None]
    if len(set(scales)) > 1:
        raise ValueError(f"{text!r} has several scales; give one")
    return sorted(chosen, key=lambda pair: (_ORDER.index(pair[0].scale), bool(pair[0].shown)))


def extend(name: str, encoding: Encoding, scale: float, **options) -> Encoding:
    """Extend the context of an encoding `scale` times, by one extension or a composition.

    L in the formulas is `encoding.train_length`: the length it was built for, or max_position for
    randomized positions. For `dynamic_x`, scale is the length read over L, at least 1. A scale in
    `name` takes precedence, and extensions without a scale ignore it.
    """
    chosen = named(name)
    if not isinstance(encoding, Encoding):
        raise ValueError(f"encoding must be made by posenc_jax.build; got {encoding!r}")
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(encoding)):
        raise ValueError("extend works on the host: call it first, then pass the result to jax.jit")
    all_options = _options_of_each(chosen, options)
    named_scale = next((part.scale for _, part in chosen if part.scale is not None), None)
    scales = [_scale(record, scale if named_scale is None else named_scale) for record, _ in chosen]
    for (record, _), given in zip(chosen, all_options, strict=True):
        _check_fits(record, encoding)
        for option in _FACTORS & given.keys() if not is_scalable(encoding) else ():
            raise ValueError(
                f"{option} = {given[option]!r} has no effect on encoding {encoding.name!r}: its "
                "norm cancels factors on logits"
            )
    before = encoding
    for (record, _), scale, options in zip(chosen, scales, all_options, strict=True):
        kind = record.changed(before)
        if kind is not None:
            raise ValueError(
                f"encoding {encoding.name!r} is already extended, or its numbers are not those "
                f"of its base ({kind.name}); start from the encoding as trained"
            )
        encoding = _applied(record, encoding, scale, options)
    return encoding


def _options_of_each(chosen, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Collect the options of each extension, from its text and from the call."""
    collected = [dict(part.options) for _, part in chosen]
    for name, value in options.items():
        if name == "layers":  # of all
            for own_options in collected:
                own_options.setdefault(name, value)
            continue
        takers = [i for i, (record, _) in enumerate(chosen) if name in record.options]
        if len(takers) > 1:
            names = " and ".join(chosen[i][0].name for i in takers)
            raise ValueError(f"{names} both take {name!r}; attach it to one name: NAME:{name}=...")
        collected[takers[0] if takers else 0][name] = value
    for (record, _), own_options in zip(chosen, collected, strict=True):
        names = [name for name in own_options if name != "layers"]
        check_options(f"extension {record.name!r}", record.apply, names)
    return collected


def _scale(record: Extension, scale: float) -> float:
    if record.scale == "none":
        return 1.0
    if record.scale == "read":
        return max(1.0, positive("scale", scale))
    scale = positive("scale", scale, at_most=LARGEST_SCALE)
    if scale < 1:
        raise ValueError(f"scale must be at least 1; got {scale!r}")
    return scale


def _check_fits(record: Extension, encoding: Encoding):
    if not record.fits(encoding):
        lost = record.is_lost_in(type(encoding)) and any(
            map(record.fits, encoding.named_parts().values())
        )
        raise ValueError(
            f"extension {record.name!r} is made for {record.made_for} and does not fit encoding "
            f"{encoding.name!r}; those that do: {', '.join(fitting(encoding))}"
            + f"; forward {record.acts_by!r} as posenc_jax.layers.Wrapper does"
            * lost
        )


def _applied(record: Extension, encoding: Encoding, scale: float, options: dict) -> Encoding:
    """Apply an extension to the layers that the option `layers` names.

    By default these are the layers that see everything, if it fits them, else all.
    """
    layers, kinds = options.pop("layers", None), encoding.kinds_of_layers()
    if not kinds and layers is not None:
        raise ValueError(
            f"layers={layers!r} has no effect: all layers of encoding {encoding.name!r} are alike"
        )
    if layers is not None:
        known("kind of layers:", layers, [*kinds, ALL])
    elif kinds:
        layers = record.default_layers(encoding)
    return record.applied(encoding, scale, None if layers == ALL else layers, options)


def fitting(encoding: Encoding) -> list[str]:
    """List the names of the extensions that fit an encoding."""
    return [name for name, record in records().items() if record.fits(encoding)]


def distances(name: str, length: int, train_length: int, **options) -> np.ndarray:  # [T, T]
    """Return the distance at which each query of a row sees each key; -1: not visible.

    `name` is an extension of RoPE; those that depend on the length read get `length`.
    """
    if all(record.kind is not distance.DISTANCE for record, _ in named(name)):
        choices = [other for other, r in records().items() if r.kind is distance.DISTANCE]
        raise ValueError(f"{name!r} changes no distances; those that do: {', '.join(choices)}")
    length = token_count("length", length)
    rope = schemes.build("rope", Dims(1, 2, 2, train_length))
    return distance.table(extend(name, rope, max(1.0, length / train_length), **options), length)


def canonical(name: str, *, columns: bool = True) -> str:
    """Return the name of a composition in results: without its scale, default options and, with
    `columns`, options that have a column."""
    parts = []
    for record, part in named(name):
        options = {
            option: value
            for option, value in sorted(part.options.items())
            if not (columns and option in record.shown) and not _is_default(record, option, value)
        }
        parts.append(Part(part.name, None, options))
    return composition.text(parts)


def _is_default(record: Extension, option: str, value: Any) -> bool:
    return option in record.options and record.options[option].default == value
