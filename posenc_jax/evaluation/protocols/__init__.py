"""Protocols: which targets are scored, and from how much context. The file names are the registry.

A file holds a subclass of `Protocol` and one instance of it called `protocol`. Nothing here imports
jax.
"""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from posenc_jax import registry
from posenc_jax.config.schema import Evaluation, words
from posenc_jax.display import Panels, Table
from posenc_jax.evaluation.cells import Cell
from posenc_jax.evaluation.columns import COMMON, Column
from posenc_jax.evaluation.statistics import Terms
from posenc_jax.evaluation.windows import Reading, Text

registry.keep_names(__name__)

HEADLINE = "same_token"  # first in tables and pictures; sets the number of windows


class Protocol:
    """Base class of protocols, with the defaults that suit most of them."""

    title = ""  # of tables and pictures, after the name
    columns: Mapping[str, Column] = {}  # that its readings or `values` fill
    order = 100  # rank among the rows of a length
    option: str | None = None  # field of configs/eval.py, and column, for its span
    value = "ppl"  # accuracy: of its answers; any other word: a loss
    by_place = False  # a curve over the places of the longest window, not over lengths
    by_part = False  # several readings per length: ranges of distance, changes of the text
    needs: str | None = None  # the protocol whose cells it uses, if it reads nothing itself
    reads: tuple[str, ...] = ()  # more fields of configs/eval.py that it reads

    @cached_property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def span(self, config: Any, trained: int, lengths: Sequence[int]) -> int | None:
        """Value of its option in the configuration, or its default for a run with L = `trained`."""
        return None

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        """Raise a ConfigError if lengths and span do not suit it, or score different targets."""

    def mistake(self, config: Evaluation) -> str | None:
        """Mistake in a configuration that asks for this protocol."""
        return None

    def text(self, text: Text, subject: Any, lengths: Sequence[int], config: Evaluation) -> Text:
        """Text to read: that of the evaluation, or one that the protocol generates."""
        return text

    def plan(self, text: Text, length: int, span: int | None) -> Reading | None:
        """Windows of a length and the targets scored in them; None: not read at this length."""
        raise NotImplementedError

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Readings at a length: one, or several with parts."""
        reading = self.plan(text, length, span)
        return [] if reading is None else [reading]

    def picture(self, cells: Sequence[Cell]) -> Panels | None:
        """A picture of its own of the newest checkpoint; None without one."""
        return None

    def longest_of_one_run(self, cells: Sequence[Cell]) -> list[Cell]:
        """Its cells of the longest windows; none where they are of several runs."""
        own = [cell for cell in cells if cell.facts["protocol"] == self.name]
        if len({cell.facts["run"] for cell in own}) > 1:
            return []
        longest = max((cell.facts["length"] for cell in own), default=0)
        return [cell for cell in own if cell.facts["length"] == longest]

    def table(self, rows: Sequence[dict]) -> Table | None:
        """A table of its own of the rows of a length; None: parts as columns."""
        return None

    def values(self, cell: Cell) -> dict[str, float | None]:
        """Columns of a row that are computed from its sums: found, held, order."""
        return {}

    def beside(self, cell: Cell, parts: Mapping[str, Cell]) -> dict[str, float | None]:
        """Columns of a row that need other parts of its curve and length."""
        return {}

    def derived(self, cells: Sequence[Cell]) -> list[Cell]:
        """Derive cells from those read, of its own or of the protocol in `needs`."""
        return []

    def null(self, trained: int, cell: Cell, curve: Mapping[tuple[str, int], Cell]) -> Terms | None:
        """Score beyond L = `trained` of a model that never uses more than L tokens, from the cells
        of its curve over the same targets, by protocol and length; None without a null."""
        return None

    @property
    def has_null(self) -> bool:
        return type(self).null is not Protocol.null

    def wanted(self, span: int | None) -> int:
        """Number of longest windows that gives enough targets."""
        return 0

    def warning(self, windows: int, span: int | None) -> str | None:
        """Warning about too few longest windows."""
        return None


class ByTokensSeen(Protocol):
    """A protocol whose null is taken from its own windows of L, by tokens that a target sees."""

    def null(self, trained: int, cell: Cell, curve: Mapping[tuple[str, int], Cell]) -> Terms | None:
        at_trained = curve.get((self.name, trained))
        return None if at_trained is None else by_early(cell, at_trained, at_trained)


def by_early(cell: Cell, within: Cell, tail: Cell | None) -> Terms | None:
    """Null of scored targets, weighted by the share of them that sees L tokens or fewer.

    For these it is the mean over all places of windows of L, for the others the mean over their
    last quarter. Both include targets that are not scored, since scored ones may be few.
    """
    if tail is None or not tail.tail_tokens.sum():
        return None
    early = float(cell.early.sum() / cell.tokens.sum())
    return [
        (early, within.within_nats, within.within_tokens),
        (1.0 - early, tail.tail_nats, tail.tail_tokens),
    ]


OWN: dict[str, Protocol] = {}  # those of modules of one's own that were named


@cache
def find(name: str) -> Protocol:
    protocol = registry.find("protocol", name).protocol
    if "." in name:
        protocol.name, OWN[name] = name, protocol
        for of_every in (columns, facts):
            of_every.cache_clear()
    return protocol


def every() -> list[Protocol]:
    """All protocols, in the order of rows."""
    known = [*map(find, registry.protocols()), *OWN.values()]
    return sorted(known, key=lambda p: (p.order, p.name))


def shown() -> list[Protocol]:
    """All protocols, in the order of tables and pictures: the headline first."""
    return sorted(every(), key=lambda p: p.name != HEADLINE)


@cache
def columns() -> dict[str, Column]:
    """Every column of curves.csv in its order: those that only protocols declare come last."""
    declared = {name: one for protocol in every() for name, one in protocol.columns.items()}
    return {name: declared.get(name, one) for name, one in COMMON.items()} | declared


@cache
def facts() -> dict[str, type]:
    """The columns that identify a cell, with their types."""
    return {name: one.kind for name, one in columns().items() if one.kind is not None}


def against_length() -> list[str]:
    """Names of the protocols with a curve over lengths, in the order of tables and pictures."""
    return [p.name for p in shown() if not (p.by_place or p.by_part or p.needs)]


def asked(config: Any) -> list[Protocol]:
    chosen = [find(word) for word in words(config.protocols)]
    return [p for p in every() if p in chosen]


def mistakes(config: Evaluation) -> list[str]:
    """Options that no requested protocol reads, and protocols without the one they need."""
    names = [protocol.name for protocol in asked(config)]
    readers: dict[str, list[str]] = {}
    for protocol in every():
        for option in (protocol.option, *protocol.reads):
            if option:
                readers.setdefault(option, []).append(protocol.name)
    unused = [
        f"{option} = {getattr(config, option)} has no effect without {' or '.join(of)} in protocols"
        for option, of in readers.items()
        if getattr(config, option) and not set(of) & set(names)
    ]
    incomplete = [
        f"{p.name} in protocols needs {p.needs}: add it"
        for p in every()
        if p.needs and p.name in names and p.needs not in names
    ]
    own = (p.mistake(config) for p in every() if p.name in names)
    return unused + incomplete + [mistake for mistake in own if mistake]
