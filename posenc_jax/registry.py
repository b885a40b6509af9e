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


def probes() -> list[str]:
    """Tasks whose answer stands far back."""
    return files("data", "tasks")


def tasks() -> list[str]:
    """Every kind of synthetic text."""
    return [*TEXTS, *probes()]


FILES = ("text", "jsonl", "parquet")  # sources that read files of the user's
SOURCES = ("stdlib", *FILES, "hub", "synthetic")  # of text; read in data/sources.py
TEXTS = ("copy", "induction")  # of synthetic text, made in data/synthetic.py
WANDB_MODES = ("auto", "online", "offline", "disabled")
