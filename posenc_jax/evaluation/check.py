"""Validate the configuration of an evaluation, alone and for the run that it reads."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import jax
from ml_collections import ConfigDict

from posenc_jax import composition
from posenc_jax.attention import ring
from posenc_jax.config import Evaluation, Training, building, schema
from posenc_jax.config.check import mistakes_in_evaluation
from posenc_jax.config.resolve import trained_length
from posenc_jax.config.schema import words
from posenc_jax.data import texts
from posenc_jax.data.corpora import Corpus, Mixture
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import methods, protocols, windows
from posenc_jax.evaluation.methods import check_some_fit, left_out
from posenc_jax.runtime.errors import ConfigError


def load(recipe: ConfigDict | Mapping[str, Any], *, more: Sequence[str] = ()) -> Evaluation:
    """The typed configuration of an evaluation, or a ConfigError with every mistake.

    `more` are mistakes that a program found itself.
    """
    config, problems = read(recipe)
    if config is None or more:
        raise ConfigError(*more, *problems)
    return config


def read(recipe: ConfigDict | Mapping[str, Any]) -> tuple[Evaluation | None, list[str]]:
    """The typed configuration of an evaluation, or every mistake in it."""
    values = recipe.to_dict() if isinstance(recipe, ConfigDict) else recipe
    problems = mistakes_in_evaluation(values)
    if isinstance(values.get("extensions"), str):
        problems += methods.mistakes(values["extensions"])
    if problems:
        return None, problems
    config = schema.from_fields(values, Evaluation)
    problems = protocols.mistakes(config)
    return (None if problems else config), problems


def refuse_unfit(config: Evaluation, run: Training) -> None:
    """Refuse an evaluation that cannot fit this run, whatever its text."""
    plain = building.plain(run, jax.random.key(0))
    lengths = lengths_of(config, trained_length(run))
    check_some_fit(config.extensions, left_out(config.extensions, plain), plain)
    ratio = lengths[-1] / plain.train_length
    requested = methods.methods(config.extensions, plain, ratio)  # which checks their options
    for method in requested if config.sequence > 1 else ():
        with suppress(ValueError):  # it is skipped
            refuse_uncut(config, method.applied(plain, plain, ratio))


def refuse_uncut(config: Evaluation, encoding: Encoding) -> None:
    """Refuse an encoding that reads whole rows, where devices share them."""
    if config.sequence > 1:
        try:
            ring.check(encoding)
        except ValueError as error:
            raise ConfigError(str(error)) from error


def refuse_unreadable(config: Evaluation, run: Training, corpus: Corpus | Mixture) -> None:
    """Before training: refuse held-out documents that are too short for the evaluation."""
    split = texts.own_split(config.data, run.data.source, corpus)
    if split is not None:
        longest = max(lengths_of(config, trained_length(run)))
        windows.choose(windows.in_stretches(split, longest), longest)


def some_fit(text: str, run: Training) -> bool:
    """True if any extension of a list fits the encoding of a run."""
    return set(words(text)) > set(left_out(text, building.plain(run, jax.random.key(0))))


def lengths_of(config: Evaluation, trained: int) -> list[int]:
    multiples = {float(word) for word in words(config.multiples)}
    lengths = sorted({round(multiple * trained) for multiple in multiples})
    if config.lengths:
        lengths = sorted({composition.value(word) for word in words(config.lengths)})
    if lengths[0] < 2:
        raise ConfigError(f"every length must be at least 2 tokens; multiples give {lengths}")
    for protocol in protocols.asked(config):
        protocol.check(lengths, protocol.span(config, trained, lengths), trained)
    return lengths
