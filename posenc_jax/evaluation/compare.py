"""Differences between two curves, RUN[@METHOD][@LENGTH], paired by document."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posenc_jax import composition, registry
from posenc_jax.config.schema import words
from posenc_jax.display import FORMS, Table
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.cells import Cell, label, targets_of
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, Units, paired
from posenc_jax.runs.subject import run_config
from posenc_jax.runtime.errors import ConfigError, DataError, Stop
from posenc_jax.runtime.files import shortest
from posenc_jax.runtime.terminal import printable, warn

USAGE = "RUN[@METHOD[,METHOD...]][@LENGTH], such as runs/rope@yarn:8@1024"


Row = tuple[str, str, str, str, Units]  # name, nats, interval, bits per byte, units


class Selection(NamedTuple):
    """A run, its methods and a length; methods and length may be omitted."""

    run: Path
    methods: tuple[str, ...] = ()
    length: int | None = None


def parse_selection(text: str) -> Selection:
    """Parse a selection; its run is the longest folder that exists, as names may contain @."""
    pieces = text.split("@")
    folders = ["@".join(pieces[:count]) for count in range(len(pieces), 0, -1)]
    folder = next((folder for folder in folders if Path(folder).is_dir()), pieces[0])
    rest = [piece for piece in text[len(folder) :].split("@") if piece]
    run, colon, methods = folder.partition(":")
    if colon and not Path(folder).is_dir() and Path(run).is_dir():
        raise ConfigError(f"{text}: methods follow an @: {run}@{methods}")
    length = int(rest.pop()) if rest and rest[-1].isdecimal() else None
    if len(rest) > 1 or length == 0:
        raise ConfigError(f"{text!r} must be {USAGE}")
    return Selection(Path(folder), tuple(words(rest[0])) if rest else (), length)


def protocols_in(text: str) -> list[str]:
    """The protocols of a comma-separated list."""
    try:
        return [word for word in words(text) if registry.check("protocol", word)]
    except ValueError as error:
        raise ConfigError(str(error)) from None


def selected_cells(text: str, evaluation: str = "") -> list[Cell]:
    """Cells of the newest checkpoint that a selection names; a method without a scale names all
    its scales, a run alone all its cells."""
    run, methods, length = parse_selection(text)
    run_config(run)  # refuses one that was edited
    every = records.of_evaluation(records.read_cells(run / "eval"), evaluation)
    newest = max(cell.facts["step"] for cell in every)
    every = [cell for cell in every if cell.facts["step"] == newest]
    names = {id(cell): {label(cell.facts), label(cell.facts | {"scale": None})} for cell in every}
    evaluated = set().union(*names.values())
    wanted = {name if name in evaluated else _canonical(name) for name in methods}
    missing = wanted - evaluated
    chosen = [
        cell
        for cell in every
        if (not methods or names[id(cell)] & wanted) and length in (None, cell.facts["length"])
    ]
    if missing or not chosen:
        have = sorted({label(cell.facts) for cell in every})
        lengths = sorted({cell.facts["length"] for cell in every})
        raise DataError(
            f"{text} matches no evaluated cell; {run} has {', '.join(have)} at lengths "
            f"{', '.join(map(str, lengths))}"
        )
    return chosen


def _canonical(method: str) -> str:
    """A method as rows name it: `yarn:8.0` is `yarn:8`."""
    from posenc_jax import extensions

    try:
        scale = next((p.scale for _, p in extensions.named(method) if p.scale is not None), None)
        name = extensions.canonical(method, columns=False)
    except ValueError:  # no extension: refused as one that was not evaluated
        return method
    return name if scale is None else composition.with_scale(name, scale)


def readable(texts: Sequence[str], evaluation: str = "") -> list[Cell]:
    """Cells of several selections; a run that cannot be read is skipped with a warning."""
    selected: list[Cell] = []
    errors: list[Stop] = []
    for text in texts:
        run = parse_selection(text).run
        try:
            named = selected_cells(text, evaluation)
        except Stop as error:
            errors.append(error)
            continue
        selected += [cell._replace(facts=cell.facts | {"run": str(run)}) for cell in named]
    if not selected:
        raise errors[0] if errors else DataError("there is no run here, a folder with config.json")
    for error in errors:
        warn(f"skipped: {error}")
    return selected


def check_comparable(cells: Sequence[Cell]) -> None:
    """Refuse cells of several runs that score other targets."""
    scored: dict[tuple, tuple] = {}
    for facts in (cell.facts for cell in cells):
        protocol = facts["protocol"]
        # Parts differ in their targets; so do lengths where the parts are depths.
        by_part = protocols.find(protocol).by_part
        curve = (protocol, facts["part"], facts["length"]) if by_part else (protocol,)
        if scored.setdefault(curve, targets_of(facts)) != targets_of(facts):
            raise DataError(
                f"these runs were evaluated on different targets ({protocol}) and cannot share a "
                "picture"
            )


def by_name(cells: Sequence[Cell]) -> list[Cell]:
    """Call the runs of cells by their labels or folders."""
    names = names_of(cell.facts["run"] for cell in cells)
    return [c._replace(facts=c.facts | {"run": names[c.facts["run"]]}) for c in cells]


def names_of(runs: Iterable[str | Path]) -> dict[str | Path, str]:
    """What captions call runs: by their labels or folders, or as much of their paths as tells them
    apart."""
    places = {run: Path(run).resolve() for run in runs}
    names = {str(p): printable(run_config(p).label or p.name) for p in places.values()}
    if len(set(names.values())) < len(names):
        names = shortest(names)
    return {run: names[str(place)] for run, place in places.items()}


def compare(a: str, b: str, chosen: Sequence[str], evaluation: str = "", form: str = "text") -> str:
    """Compare two selections, one row per protocol, common length and part; the default method is
    none."""
    selections = [parse_selection(text) for text in (a, b)]
    names = names_of(selection.run for selection in selections)
    one, other = (_called(selection, names[selection.run]) for selection in selections)
    rows = differences(a, b, chosen, evaluation)
    over = max(units for *_, units in rows)
    caption = (
        f"nats per token of {one} minus those of {other}, with 95% intervals over {over}; * clear: "
        f"the interval excludes zero, over {FEWEST_DOCUMENTS} documents or more."
    )
    body = [[*cells, f"{units.number:,}"] for *cells, units in rows]
    return FORMS[form](Table(caption, ["", "nats", "95%", "bits/byte", "units"], body))


def _called(selection: Selection, name: str) -> str:
    _, methods, length = selection
    return "@".join(filter(None, (name, ",".join(methods), str(length or ""))))


def differences(a: str, b: str, chosen: Sequence[str], evaluation: str = "") -> list[Row]:
    """A row per protocol, length and part; without protocols those of all."""
    first, second = selected_curve(a, evaluation), selected_curve(b, evaluation)
    rows = []
    unequal = set()
    for protocol in chosen or [protocol.name for protocol in protocols.shown()]:
        for one, other in _pairs(first, second, protocol):
            same = targets_of(one.facts) == targets_of(other.facts)
            if same and np.array_equal(one.tokens, other.tokens):
                rows.append(_difference(one, other))
            else:
                unequal.add(protocol)
    if unequal:
        raise DataError(
            f"{a} and {b} were evaluated on different targets ({', '.join(sorted(unequal))}): "
            "evaluate both with the same data, multiples, documents, windows, stride and last, or "
            "name another one by --protocol"
        )
    if not rows:
        raise DataError(f"{a} and {b} have no protocol and length in common")
    return rows


def selected_curve(text: str, evaluation: str = "") -> list[Cell]:
    """Cells of the one curve that a selection names."""
    run, methods, length = parse_selection(text)
    suffix = "" if length is None else f"@{length}"
    cells = selected_cells(text if methods else f"{run}@none{suffix}", evaluation)
    names = sorted({label(cell.facts) for cell in cells})
    if len(names) > 1:
        raise DataError(f"{text} names several curves: {', '.join(names)}; name one of them")
    return cells


def _pairs(first: Sequence[Cell], second: Sequence[Cell], protocol: str):
    """Pairs of cells with equal part, and with equal length unless each curve has a single one."""
    one, other = (_by_length_and_part(cells, protocol) for cells in (first, second))
    lengths = [{length for length, _ in curve} for curve in (one, other)]
    if len(lengths[0]) == len(lengths[1]) == 1:
        (length,), (against,) = lengths
        return [(one[length, p], other[against, p]) for _, p in one if (against, p) in other]
    return [(one[key], other[key]) for key in one if key in other]


def _by_length_and_part(cells: Sequence[Cell], protocol: str) -> dict[tuple[int, str], Cell]:
    chosen = [cell for cell in cells if cell.facts["protocol"] == protocol]
    chosen.sort(key=lambda cell: cell.facts["length"])  # stable: the order of parts stays
    return {(cell.facts["length"], cell.facts["part"] or ""): cell for cell in chosen}


def _difference(one: Cell, other: Cell) -> Row:
    name = " ".join(str(one.facts[n]) for n in ("protocol", "length", "part") if one.facts[n])
    if one.facts["length"] != other.facts["length"]:
        name += f" against {other.facts['length']}"
    difference = paired(one.nats, other.nats, one.tokens, one.facts["unit"])
    if not np.isfinite(difference.mean):
        return name, "not finite", "", "", difference.units
    per_byte = records.per_byte_of(one)
    return (
        name,
        f"{difference.mean:+.4f}{'*' if difference.clear else ''}",
        f"[{difference.low:+.4f}, {difference.high:+.4f}]",
        f"{difference.mean * per_byte:+.4f}" if per_byte else "",
        difference.units,
    )
