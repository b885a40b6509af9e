"""Names to choose from, which are names of files; nothing is imported for them."""

import sys
from functools import cache
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).parent
ROOT = _HERE.parent  # of the checkout, which holds models/ and configs/
WANDB_MODES = ("auto", "online", "offline", "disabled")


class Package(ModuleType):
    """A package whose own names stay when Python binds an imported file of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        own = name in vars(self) or name in vars(self).get("__all__", ())
        if not own or getattr(value, "__name__", "") != f"{self.__name__}.{name}":
            super().__setattr__(name, value)


def keep_names(package: str) -> None:
    sys.modules[package].__class__ = Package


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
