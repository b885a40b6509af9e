"""Mistakes in recipes, and the origins that they describe, for tests."""

from posenc_jax.config import load
from posenc_jax.data import sources
from posenc_jax.runtime.errors import ConfigError


def problems_of(recipe, saved=None) -> list[str]:
    """Every mistake."""
    try:
        load(recipe, saved)
    except ConfigError as error:
        return list(error.args)
    return []


def source_of(length: int = 128, **fields):
    """The origin that fields of `data` describe."""
    source, problems = sources.read(fields, length)
    assert source is not None, problems
    return source


def origin_of(data, length: int = 128):
    """The origin that a recipe's `data` describes."""
    own = ("answers_only", "mask_documents")
    return source_of(length, **{n: v for n, v in data.to_dict().items() if n not in own})
