"""Typed configurations from recipes, for tests; a mistake in one fails the test."""

from posenc_jax.config import Training, check
from posenc_jax.data import sources


def problems_of(recipe, saved=None) -> list[str]:
    """Every mistake, of building too where nothing else is wrong."""
    checked = check.without_building(recipe, saved)
    if checked.problems or checked.run is None:
        return checked.problems
    from posenc_jax.config import building

    return building.mistakes(checked.run)


def run_of(recipe, saved=None) -> Training:
    problems, run, _ = check.without_building(recipe, saved)
    assert run is not None and not problems, problems
    return run


def source_of(length: int = 128, **fields):
    """The origin that fields of `data` describe."""
    source, problems = sources.read(fields, length)
    assert source is not None, problems
    return source


def origin_of(data, length: int = 128):
    """The origin that a recipe's `data` describes."""
    own = ("answers_only", "mask_documents")
    return source_of(length, **{n: v for n, v in data.to_dict().items() if n not in own})
