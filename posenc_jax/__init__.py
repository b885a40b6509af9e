"""Measure length extrapolation of language models.

Names are loaded on first use, so code that needs no device starts without jax.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posenc_jax import attention, extensions, pretrained, schemes, testing
    from posenc_jax.advice import advise
    from posenc_jax.api import curves, evaluate, recipe, train
    from posenc_jax.encoding import (
        Dims,
        DistanceBias,
        Encoding,
        KeySum,
        Phase,
        Tokens,
        combine,
        partition,
        trained_mask,
    )
    from posenc_jax.extensions import extend
    from posenc_jax.layers import Wrapper, stack
    from posenc_jax.positions import place
    from posenc_jax.runs.subject import load_run
    from posenc_jax.runtime import backend
    from posenc_jax.schemes import build

__version__ = "0.2.0"

_HOME = {
    "Dims": "encoding",
    "DistanceBias": "encoding",
    "Encoding": "encoding",
    "KeySum": "encoding",
    "Phase": "encoding",
    "Tokens": "encoding",
    "Wrapper": "layers",
    "combine": "encoding",
    "partition": "encoding",
    "place": "positions",
    "stack": "layers",
    "trained_mask": "encoding",
    "build": "schemes",
    "extend": "extensions",
    "load_run": "runs.subject",
    "advise": "advice",
    "curves": "api",
    "evaluate": "api",
    "recipe": "api",
    "train": "api",
}
_MODULES = {
    "attention": "attention",
    "backend": "runtime.backend",
    "encoding": "encoding",
    "extensions": "extensions",
    "pretrained": "pretrained",
    "schemes": "schemes",
    "testing": "testing",
}

__all__ = [
    "__version__",
    "Dims",
    "DistanceBias",
    "Encoding",
    "KeySum",
    "Phase",
    "Tokens",
    "Wrapper",
    "advise",
    "attention",
    "backend",
    "build",
    "combine",
    "curves",
    "evaluate",
    "extend",
    "extensions",
    "load_run",
    "partition",
    "place",
    "pretrained",
    "recipe",
    "schemes",
    "stack",
    "testing",
    "train",
    "trained_mask",
]


def __getattr__(name):
    if name in _HOME:
        return getattr(_home(_HOME[name]), name)
    if name in _MODULES:
        return _home(_MODULES[name])
    raise AttributeError(f"module 'posenc_jax' has no attribute {name!r}")


def _home(module):
    try:
        return import_module(f"posenc_jax.{module}")
    except ModuleNotFoundError as error:
        advice = import_module("posenc_jax.runtime.errors").missing(error)
        if advice is None:
            raise
        raise ImportError(advice) from None


def __dir__():
    return sorted(__all__)
