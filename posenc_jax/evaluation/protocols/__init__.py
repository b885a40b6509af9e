"""Protocols: which targets are scored, and from how much context. The file names are the registry.

A file holds a class that derives from `Protocol`, and one object of it called `protocol`. Nothing
here imports jax.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from posenc_jax import registry
from posenc_jax.config.schema import words
from posenc_jax.evaluation.statistics import Terms
from posenc_jax.evaluation.sums import Measured, Sums
from posenc_jax.evaluation.windows import Plan, Text

HEADLINE = "same_token"  # what tables and pictures begin with, and what windows are counted for


class Reading(NamedTuple):
    """What a protocol reads at one length, or one part of it."""

    text: Text
    plan: Plan
    token_hash: str  # of the scored targets; where it is the same, rows compare
    part: str = ""  # which part of the targets, or what was done to the text
    facts: Mapping[str, Any] = {}  # more columns: chance, ceiling, orderless, older, separation


Curve = Mapping[tuple[str, int], Sums]  # of one method: (protocol, length) -> what was measured


class Protocol:
    """What one protocol says of itself; the defaults are those of most."""

    title = ""  # of tables and pictures, behind the name
    order = 100  # among the rows of a length
    option: str | None = None  # the field of configs/eval.py, and the column, that its span is in
    value = "ppl"  # in its picture against length: ppl, or bpb with bands
    by_place = False  # a curve over the places of the longest window, not over lengths
    by_part = False  # its readings have parts: how far back answers lie, what was changed
    needs: str | None = None  # the protocol that it is read off, where it reads nothing itself

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def span(self, config: Any, trained: int, lengths: Sequence[int]) -> int | None:
        """Its option as the configuration or the run has it; `trained` is L."""
        return None

    def check(self, lengths: Sequence[int], span: int | None) -> None:
        """Raises a ConfigError where lengths and span would not score the same targets."""

    def text(self, text: Text, subject: Any, lengths: Sequence[int]) -> Text:
        """What it reads: the text of the evaluation, or one that it writes itself."""
        return text

    def plan(self, text: Text, length: int, span: int | None) -> Plan | None:
        """The windows of a length, and the targets scored in them; None: not read at this one."""
        raise NotImplementedError

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """What is read at a length: one plan, if it has parts several."""
        plan = self.plan(text, length, span)
        return [] if plan is None else [Reading(text, plan, text.token_hash(plan))]

    def derived(self, cells: Sequence[Measured]) -> list[Measured]:
        """More cells, of what was measured for the protocol that it needs."""
        return []

    def null(self, trained: int, sums: Sums, curve: Curve) -> Terms | None:
        """The score beyond L = `trained` of a model that never uses more than L tokens; None: a
        protocol has no null unless it defines one. `curve` holds rows of the same targets."""
        return None

    @property
    def has_null(self) -> bool:
        return type(self).null is not Protocol.null

    def wanted(self, span: int | None) -> int:
        """How many longest windows give it enough targets."""
        return 0

    def warning(self, windows: int, span: int | None) -> str | None:
        """What is to be said of so few longest windows."""
        return None


class ByTokensSeen(Protocol):
    """One whose null is its own windows of L, by how many tokens a target sees."""

    def null(self, trained: int, sums: Sums, curve: Curve) -> Terms | None:
        at_trained = curve.get((self.name, trained))
        return None if at_trained is None else by_early(sums, at_trained, at_trained)


def by_early(sums: Sums, within: Sums, tail: Sums | None) -> Terms | None:
    """The null of scored targets, by the share of them that sees L tokens or fewer.

    At targets that see fewer tokens, the mean over all windows of L; at the others that over their
    last quarter. A single window of L has few such targets: all that were read are taken.
    """
    if tail is None or not tail.tail_tokens.sum():
        return None
    early = float(sums.early.sum() / sums.tokens.sum())
    return [
        (early, within.within_nats, within.within_tokens),
        (1.0 - early, tail.tail_nats, tail.tail_tokens),
    ]


@cache
def find(name: str) -> Protocol:
    return import_module(f"{__name__}.{name}").protocol


def every() -> list[Protocol]:
    """In the order of rows."""
    return sorted(map(find, registry.protocols()), key=lambda one: (one.order, one.name))


def shown() -> list[Protocol]:
    """In the order of tables and pictures: the headline first."""
    return sorted(every(), key=lambda one: one.name != HEADLINE)


def against_length() -> list[str]:
    """Names of those with a curve over lengths, as they are shown."""
    return [one.name for one in shown() if not (one.by_place or one.by_part or one.needs)]


def asked(config: Any) -> list[Protocol]:
    chosen = words(config.protocols)
    return [one for one in every() if one.name in chosen]


def mistakes(config: Any) -> list[str]:
    """Options of an evaluation that no protocol in it reads; those of structure are not sought."""
    names = words(config.protocols)
    readers: dict[str, list[str]] = {}
    for one in every():
        if one.option:
            readers.setdefault(one.option, []).append(one.name)
    said = [
        f"{option} = {getattr(config, option)} has no effect without {' or '.join(of)} in protocols"
        for option, of in readers.items()
        if getattr(config, option) and not set(of) & set(names)
    ]
    return said + [
        f"{one.name} in protocols is read off {one.needs}: ask for that too"
        for one in every()
        if one.needs and one.name in names and one.needs not in names
    ]
