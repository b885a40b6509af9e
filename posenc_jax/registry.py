"""Names to choose from, which are names of files; nothing is imported for them."""

from pathlib import Path

_HERE = Path(__file__).parent


def files(*folder: str) -> list[str]:
    """The modules of a folder of this package, except those that start with `_`."""
    return sorted(path.stem for path in _HERE.joinpath(*folder).glob("[!_]*.py"))


def encodings() -> list[str]:
    return files("schemes")


def protocols() -> list[str]:
    return files("evaluation", "protocols")


SOURCES = ("stdlib", "text", "jsonl", "hub", "synthetic")  # of text; read in data/sources.py
TASKS = ("copy", "induction", "passkey", "delayed_repeat")  # of synthetic text
WANDB_MODES = ("auto", "online", "offline", "disabled")
