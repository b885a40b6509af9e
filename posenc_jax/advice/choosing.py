"""Which method to measure next, which of them to decide between, and which to set."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from posenc_jax.advice.measuring import Finding
from posenc_jax.evaluation.statistics import holm

RULE = (
    "rule: of the methods that read N, the lowest mean price at the prompts' lengths. A method "
    "reads N if at every distance in rows of N a copy keeps clearly more than half of what a near "
    "one saves (95%, over texts). Prices that do not differ after Holm's correction are ties"
)
TRIES = 3  # factors of a family
LEAST = 1.1  # factor
FINALISTS = 3
DEAR = 0.05  # nats per token: a price that the first sentence names a cheaper method for


class Family(NamedTuple):
    """Methods that differ in their factor."""

    word: str
    times: float = 1.0  # its first factor, over the smallest of YaRN that reads N
    whole: bool = False

    def method(self, factor: float) -> str:
        return self.word.format(math.ceil(factor) if self.whole else float(f"{factor:.2g}"))


YARN = Family("yarn:{:g}")
FAMILIES = (  # in the order of screening
    YARN,
    Family("yarn:{:g}:attention_factor=1"),
    Family("ntk:{:g}", 1.5),
    Family("self_extend:group={:d}", 1.5, whole=True),
)
Tried = dict[Family, dict[float, Finding]]  # by factor


def families(fitting: Sequence[str], own: str) -> list[Family]:
    """Those that fit a model, the kind of its own extension too."""
    every = [*FAMILIES, Family(f"{own}:{{:g}}")] if own in ("pi", "llama3") else FAMILIES
    return [family for family in every if family.word.partition(":")[0] in fitting]


def needed(plain: Finding, original: int, own: float) -> float:
    """The factor that brings a row of N into what is read without an extension, or with the
    model's `own` factor; at most twice what brings it into L, since few texts tell little."""
    usual = plain.target / original
    return max(LEAST, min(own * plain.target / max(1, plain.reach), 2 * usual))


def following(tried: Tried, need: float, among: Sequence[Family]) -> tuple[Family, float] | None:
    """The family and factor to screen next: near the smallest factor that reads N."""
    first = need
    for family in among:
        own = tried.get(family, {})
        if not own:
            return family, first * family.times
        far = sorted(factor for factor, one in own.items() if one.reach == one.target)
        near = sorted(set(own) - set(far))  # too small, as a rule
        if len(own) < TRIES:
            if not far:
                more = own[near[-1]].target / max(1, own[near[-1]].reach)
                return family, near[-1] * min(2.0, max(1.25, more))
            if family is YARN and not near and far[0] > LEAST:
                return family, max(LEAST, 0.75 * far[0])
            if family is YARN and near and far[0] > 1.2 * near[-1]:
                return family, math.sqrt(far[0] * near[-1])
        first = far[0] if family is YARN and far else first
    return None


def ordered(findings: Sequence[Finding], plain: Finding, prompts: Sequence[int]) -> list[Finding]:
    """Those that read N by their price, then the others by what they keep at the worst distance."""
    price = {one.method: one.price(plain, prompts).mean for one in findings}
    return sorted(
        findings, key=lambda one: (0, price[one.method]) if one.reads else (1, -one.least)
    )


def finalists(
    ranked: Sequence[Finding], right: Sequence[str], everywhere: Sequence[str]
) -> list[Finding]:
    """At most three to decide between: the best of those that the engine reads right, the best of
    all, the best that every engine reads right, and the one that keeps most."""
    own = [one for one in ranked if one.method in right]
    by_all = [one for one in ranked if one.method in everywhere]
    reading = [one for one in own if one.reads] or own or ranked
    keeps_most = max(reading, key=lambda one: one.least)
    wanted = (*own[:1], *ranked[:1], *by_all[:1], keeps_most, *own, *ranked)
    return list({one.method: one for one in wanted}.values())[:FINALISTS]


class Choice(NamedTuple):
    """What to set, or why nothing is."""

    method: str | None  # None: none reads N
    finding: Finding
    ties: Sequence[str] = ()  # other methods whose price does not differ clearly


def choose(
    decided: Sequence[Finding], prompts: Sequence[int], right: Sequence[str]
) -> Choice | None:
    """The choice among no extension, the first, and the methods that an engine reads right; None
    without any of these."""
    plain, *others = decided
    own = [one for one in others if one.method in right]
    if plain.clear:
        return Choice(plain.method, plain)
    if not own:
        return None
    reading = [one for one in own if one.clear]
    if not reading:
        return Choice(None, max(own, key=lambda one: one.least))
    best, *others = sorted(reading, key=lambda one: one.price(plain, prompts).mean)
    apart = holm([one.price(best, prompts).p for one in others])
    ties = [one.method for one, p in zip(others, apart, strict=True) if p.p > 0.05]
    return Choice(best.method, best, ties)


def cheaper(
    price: float, findings: Sequence[Finding], plain: Finding, prompts: Sequence[int]
) -> Finding | None:
    """The method that reaches farthest of those at most half as dear, where a price is high."""
    others = [
        one
        for one in findings
        if max(one.price(plain, [n]).mean for n in prompts) < price / 2 and one.reach > plain.reach
    ]
    return max(others, key=lambda one: one.reach) if price > DEAR and others else None
