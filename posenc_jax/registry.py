"""Names to choose from: names of files, for which nothing is imported, and modules of one's own."""

import os
import sys
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from posenc_jax.checks import known

_HERE = Path(__file__).parent
ROOT = _HERE.parent  # of the checkout, which holds models/ and configs/
WANDB_MODES = ("auto", "online", "offline", "disabled")
KINDS = {  # of choices: the folder of their files, and what each of these defines
    "encoding": ("schemes", "build"),
    "protocol": ("evaluation/protocols", "protocol"),
    "source": ("data/sources", "Source"),
    "task": ("data/tasks", "Task"),
}


class Package(ModuleType):
    """A package whose own names stay when Python binds an imported file of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        own = name in vars(self) or name in vars(self).get("__all__", ())
        if not own or getattr(value, "__name__", "") != f"{self.__name__}.{name}":
            super().__setattr__(name, value)


def keep_names(package: str) -> None:
    sys.modules[package].__class__ = Package


def files(folder: str) -> list[str]:
    """The modules of a folder of this package, except those that start with `_`."""
    return sorted(path.stem for path in _HERE.joinpath(folder).glob("[!_]*.py"))


def own(kind: str, name: str) -> ModuleType:
    """Import a module of one's own, `my_pkg.gaussian`, also from the current folder."""
    if not all(map(str.isidentifier, name.split("."))):
        raise ValueError(f"{kind} {name!r} must be a module with its package: my_pkg.gaussian")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # of what it imports
        raise ValueError(
            f"{kind} {name!r}: there is no module {error.name!r}; start in the folder that holds "
            "it, or name that folder in PYTHONPATH"
        ) from None


def check(kind: str, name: str) -> str:
    """Return the whole name of the module of a choice, which is imported if it is one's own."""
    folder, needed = KINDS[kind]
    if not {".", "/"} & set(str(name)):
        return f"posenc_jax.{folder.replace('/', '.')}.{known(kind, name, files(folder))}"
    found = getattr(own(kind, name), needed, None)
    if found is None or kind == "encoding" and not callable(found):
        raise ValueError(f"{kind} {name!r}: module {name} defines no {needed!r}")
    return name


def find(kind: str, name: str) -> ModuleType:
    return import_module(check(kind, name))


def exists(kind: str, name: Any) -> bool:
    try:
        return bool(check(kind, name))
    except ValueError:
        return False


encodings, protocols = partial(files, "schemes"), partial(files, "evaluation/protocols")
sources, tasks = partial(files, "data/sources"), partial(files, "data/tasks")


def is_task(name: str) -> bool:
    return name in tasks() or "." in name and exists("task", name)


def texts() -> list[str]:
    """The sources that read a text which someone names."""
    return [name for name in sources() if name not in ("synthetic", "mixture", "tokens", "unknown")]


@cache
def models() -> list[str]:
    """The families of models: files of models/ with a line `Model = ...`."""
    files = ROOT.joinpath("models").glob("[!_]*.py")
    return sorted(p.stem for p in files if "\nModel = " in p.read_text(encoding="utf-8"))
