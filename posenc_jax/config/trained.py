"""Which arrays of a model a run trains: `trains`, patterns of their names.

An array of all layers may be trained in some: `blocks.0-15.attention.*` names the first sixteen.
The part is an array of its own, `blocks.0-15.attention.q.kernel`.
"""

import re
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.config.schema import Training

EVERY, NONE, LORA = "*", "none", "*.lora_*"
LAYERS = re.compile(r"blocks\.(\d+)(?:-(\d+))?\.(.+)")

Params = dict[str, dict[str, Any]]  # {"model": {name: array}, "encoding": {name: array}}


class Part(NamedTuple):
    """An array that is trained, in these layers."""

    array: str
    layers: slice | None = None  # None: in all


def pattern_of(config: Training) -> str:
    return config.trains or (EVERY if config.model.lora is None else LORA)


def parts_of(model: dict[str, Any], patterns: str) -> dict[str, Part]:
    """What is trained, by the name of its array; a ValueError says which pattern matches
    nothing."""
    found: dict[str, Part] = {}
    for pattern in () if patterns == NONE else patterns.split(","):
        ranged = LAYERS.fullmatch(pattern)
        wanted = f"blocks.{ranged[3]}" if ranged else pattern
        names = [name for name in model if fnmatchcase(name, wanted)]
        if not names:
            near = get_close_matches(wanted, model, 5, 0.3) or list(model)[:5]
            raise ValueError(
                f"{pattern!r} matches no array of the model; near it: {', '.join(near)}"
            )
        for name in names:
            if not ranged:
                found[name] = Part(name)
                continue
            first, last = int(ranged[1]), int(ranged[2] or ranged[1])
            layers, count = slice(first, last + 1), model[name].shape[0]
            if not layers.start < layers.stop <= count:
                raise ValueError(
                    f"{pattern!r} names layers that are not there; they are 0-{count - 1}"
                )
            if layers == slice(0, count):
                found[name] = Part(name)
            else:
                number = pattern.split(".")[1]
                found[name.replace("blocks.", f"blocks.{number}.", 1)] = Part(name, layers)
    for array in {part.array for part in found.values()}:
        own = [part.layers for part in found.values() if part.array == array]
        covered = [layer for layers in own if layers for layer in range(layers.start, layers.stop)]
        if len(own) > 1 and (None in own or len(set(covered)) < len(covered)):
            raise ValueError(f"{patterns!r} names {array} twice")
    return found


def split(params: Params, config: Training) -> tuple[Params, dict[str, Any]]:
    """The arrays that are trained, with all of the encoding, and those of the model that are not,
    or not in all layers."""
    model = params["model"]

    def own(part: Part) -> Any:
        array = model[part.array]
        return array if part.layers is None else array[part.layers].astype(np.float32)

    parts = parts_of(model, pattern_of(config))
    frozen = {name: leaf for name, leaf in model.items() if name not in parts}
    return {"model": {n: own(p) for n, p in parts.items()}, "encoding": params["encoding"]}, frozen


def whole(own: Params, frozen: dict[str, Any], config: Training) -> Params:
    """All arrays, of trained and frozen ones."""
    if not frozen:
        return own
    model = frozen | {name: leaf for name, leaf in own["model"].items() if not LAYERS.match(name)}
    for name, part in parts_of(model, pattern_of(config)).items():
        if part.layers is not None:
            model[part.array] = _replaced(model[part.array], part.layers, own["model"][name])
    return {"model": model, "encoding": own["encoding"]}


def _replaced(array: Any, layers: slice, own: Any) -> Any:
    array = array.astype(own.dtype)
    if not isinstance(array, np.ndarray):
        return array.at[layers].set(own)
    array[layers] = own
    return array
