"""Names to choose from, which are names of files; nothing is imported for them."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
ROOT = _HERE.parent  # of the checkout, which holds models/ and configs/
WANDB_MODES = ("auto", "online", "offline", "disabled")
REQUIRED = object()  # an option without a default


def files(*folder: str) -> list[str]:
    """The modules of a folder of this package, except those that start with `_`."""
    return sorted(path.stem for path in _HERE.joinpath(*folder).glob("[!_]*.py"))


def encodings() -> list[str]:
    return files("schemes")


def protocols() -> list[str]:
    return files("evaluation", "protocols")


def sources() -> list[str]:
    return files("data", "sources")


def texts() -> list[str]:
    """The sources that read a text which someone names."""
    return [name for name in sources() if name not in ("synthetic", "mixture", "tokens", "unknown")]


def tasks() -> list[str]:
    return files("data", "tasks")


@cache
def models() -> list[str]:
    """The families of models: files of models/ with a line `Model = ...`."""
    files = ROOT.joinpath("models").glob("[!_]*.py")
    return sorted(p.stem for p in files if "\nModel = " in p.read_text(encoding="utf-8"))


@cache
def encoding_options(name: str) -> Mapping[str, Any]:
    """The options of an encoding with their defaults, read from its source: no jax is imported.

    An encoding around another one takes the options of that one as well: see `takes_inner`.
    """
    arguments = _build(name).args
    defaults = [
        REQUIRED if node is None else ast.literal_eval(node) for node in arguments.kw_defaults
    ]
    return dict(zip((argument.arg for argument in arguments.kwonlyargs), defaults, strict=True))


def takes_inner(name: str) -> bool:
    """True if an encoding is built around another one, named by the option `inner`."""
    return _build(name).args.kwarg is not None


@cache
def _build(name: str) -> ast.FunctionDef:
    tree = ast.parse(_HERE.joinpath("schemes", f"{name}.py").read_text(encoding="utf-8"))
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "build")
