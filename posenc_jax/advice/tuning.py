"""Tune a model for the chosen method, and say whether that was worth it."""

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from posenc_jax import api, composition
from posenc_jax.advice.measuring import Finding, Measuring
from posenc_jax.composition import Part
from posenc_jax.runtime.errors import DONE, ConfigError, Stopped

HELD_OUT = 0.5  # share of the texts that tuning leaves for the comparison


def recipe_of(tune: str) -> tuple[str, dict[str, Any]]:
    """The recipe that --tune names, and its fields: lora:steps=200."""
    parts = composition.parts(tune)
    if len(parts) != 1 or parts[0].scale is not None:
        raise ConfigError(
            f"--tune must be a recipe and its fields, as lora:steps=200; got {tune!r}"
        )
    try:
        api.recipe(parts[0].name, parts[0].options)
    except ValueError as error:
        raise ConfigError(f"--tune={tune}: {error}") from error
    return parts[0].name, dict(parts[0].options)


def tuned(
    base: Measuring, run: Path, folder: Path, method: str, tune: str, data: Mapping[str, Any]
) -> str:
    """Train with a method, and compare on texts that were not trained on."""
    (part,), (name, fields) = composition.parts(method), recipe_of(tune)
    fields |= {f"data.{field}": value for field, value in data.items()}
    fields |= {"init_from": str(run), "data.valid_fraction": HELD_OUT, "wandb.mode": "disabled"}
    fields |= {"extension.name": composition.text([Part(part.name, None, part.options)])}
    fields |= {"extension.scale": part.scale or 1.0}
    # Another method, recipe or text is another run.
    digest = hashlib.sha256(f"{tune} {method} {data}".encode()).hexdigest()[:8]
    place = folder / f"tuned-{digest}"
    if api.train(api.recipe(name, fields), place) != DONE:
        raise Stopped("tuning stopped; the same command resumes")
    after, before = base.of(place), copy(base)
    before.texts, every = after.texts, slice(None)
    one, other = after.finding("none", every), before.finding(method, every)
    return f"{in_words(tune, one, other, base.prompts)} The run: {place.name}."


def in_words(tune: str, one: Finding, other: Finding, prompts: Sequence[int]) -> str:
    gain, price = one.gain(other, one.target), one.price(other, prompts)
    worth = gain.low > 0 and not price.low > 0 and one.least > other.least - 0.05
    return (
        f"Tuning by {tune} saves {gain.mean:.3f} nats per token [{gain.low:.3f}, {gain.high:.3f}] "
        f"in rows of {one.target:,} and costs {price.mean:.3f} [{price.low:.3f}, {price.high:.3f}] "
        f"in prompts, over {other.method} untuned; where a copy keeps least it keeps "
        f"{one.least:.2f}, before {other.least:.2f}: {'' if worth else 'not '}worth it, over "
        f"{one.units} that it was not trained on."
    )
