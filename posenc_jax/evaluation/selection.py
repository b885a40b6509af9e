"""Runs and methods as command lines name them: RUN[@METHOD[,METHOD...]][@LENGTH]."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from posenc_jax.config.schema import words
from posenc_jax.errors import ConfigError, DataError, Stop
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.table import label
from posenc_jax.runs.workdir import Workdir
from posenc_jax.terminal import warn

USAGE = "RUN[@METHOD[,METHOD...]][@LENGTH], such as runs/rope@yarn:8@1024"


class Selection(NamedTuple):
    """A run, methods of it and a length; whoever reads it says what an omitted part means."""

    run: Path
    methods: tuple[str, ...] = ()
    length: int | None = None


def parse(text: str) -> Selection:
    """The run is the longest folder that exists, since its own name may contain @."""
    parts = text.split("@")
    folders = ["@".join(parts[:count]) for count in range(len(parts), 0, -1)]
    folder = next((folder for folder in folders if Path(folder).is_dir()), parts[0])
    rest = [part for part in text[len(folder) :].split("@") if part]
    run, colon, methods = folder.partition(":")
    if colon and not Path(folder).is_dir() and Path(run).is_dir():
        raise ConfigError(f"{text}: methods follow an @: {run}@{methods}")
    length = int(rest.pop()) if rest and rest[-1].isdigit() else None
    if len(rest) > 1 or length == 0:
        raise ConfigError(f"{text!r} must be {USAGE}")
    return Selection(Path(folder), tuple(words(rest[0])) if rest else (), length)


def cells(text: str, evaluation: str = "") -> list[Measured]:
    """Cells of the newest checkpoint that a text names: all of them where it names the run alone.

    A method without a scale means all its scales.
    """
    run, methods, length = parse(text)
    Workdir(run).checked_config()
    every = records.of_evaluation(records.read(run / "eval"), evaluation)
    newest = max(cell.facts["step"] for cell in every)
    every = [cell for cell in every if cell.facts["step"] == newest]
    names = {id(cell): {label(cell.facts), label(cell.facts | {"scale": None})} for cell in every}
    missing = set(methods).difference(*names.values())
    chosen = [
        cell
        for cell in every
        if (not methods or names[id(cell)] & set(methods))
        and length in (None, cell.facts["length"])
    ]
    if missing or not chosen:
        have = sorted({label(cell.facts) for cell in every})
        lengths = sorted({cell.facts["length"] for cell in every})
        raise DataError(
            f"{text} names nothing evaluated; {run} has {', '.join(have)} at lengths "
            f"{', '.join(map(str, lengths))}"
        )
    return chosen


def readable(texts: Sequence[str], evaluation: str = "") -> list[Measured]:
    """The cells of several texts; a run that cannot be read is skipped with a warning."""
    found: list[Measured] = []
    wrong: list[Stop] = []
    for text in texts:
        run = parse(text).run
        try:
            named = cells(text, evaluation)
        except Stop as error:
            wrong.append(error)
            continue
        found += [cell._replace(facts=cell.facts | {"run": str(run)}) for cell in named]
    if not found:
        raise wrong[0]
    for error in wrong:
        warn(f"skipped: {error}")
    return found


def comparable(cells: Sequence[Measured]) -> list[Measured]:
    """Cells of several runs if they score the same targets; runs with distinct folder names are
    called by those."""
    asked: dict[tuple, tuple] = {}
    for facts in (cell.facts for cell in cells):
        protocol = facts["protocol"]
        # Parts of one curve are of different targets, and so are lengths where depths are parts.
        by_part = protocols.find(protocol).by_part
        which = (protocol, facts["part"], facts["length"]) if by_part else (protocol,)
        targets = facts["token_hash"], facts["stride"], facts["last"]
        if asked.setdefault(which, targets) != targets:
            raise DataError(
                f"these runs were evaluated on different targets ({protocol}) and cannot share a "
                "picture"
            )
    names = {cell.facts["run"]: Path(cell.facts["run"]).resolve().name for cell in cells}
    if len(set(names.values())) < len(names):
        return list(cells)
    return [c._replace(facts=c.facts | {"run": names[c.facts["run"]]}) for c in cells]
