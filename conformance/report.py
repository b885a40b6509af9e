"""What a person reads of the results: one line a case, the first failure in full, the cause."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from conformance import checking, mistakes
from conformance.checking import Misuse, Result, Subject, reason


def lines(subject: Subject, results: list[Result]) -> Iterator[str]:
    """A line for each case and, if some fail, why."""
    called = [result for result in results if not result.skipped]
    if not called:
        raise Misuse(f"no case could be called: {results[0].skipped}")
    if all(result.failure for result in called):
        first = called[0]
        raise Misuse(f"no case could be compared: {first.failure} in case {first.case.name!r}")
    failed = [result for result in called if not result.passes]
    yield f"{subject.call}\n{subject.about.splitlines()[0]}\n"
    by = [result.convention for result in called if result.convention and result.passes]
    for convention, count in collections.Counter(by).items():
        yield f"PASS by another convention in {count} of {len(called)} cases: {convention}"
    for result in results:
        verdict = "skip" if result.skipped else "ok" if result.passes else "FAIL"
        detail = result.skipped or (f"{result.error:.1e}" if result.passes else reason(result))
        yield f"{verdict:4}  {result.case.name:55}  {detail}"
    worst = max(result.error for result in called)
    yield f"\n{len(called) - len(failed)} of {len(called)} cases pass; worst error {worst:.2g}"
    unseen = [name for name in subject.cases[0].outputs if name not in called[0].got]
    if unseen and called[0].got:
        yield f"not returned, so not checked: {', '.join(unseen)}"
    if failed:
        yield f"\nThe first case that fails: {failed[0].case.name}"
        yield from _explained(subject, failed[0], called)


def _explained(subject: Subject, first: Result, results: list[Result]) -> Iterator[str]:
    for name, value in first.case.inputs.items():
        if value != subject.defaults.get(name):
            yield f"  {name} = {_short(value)}"
    if first.failure:
        yield f"  {first.failure}"
    for name in first.wrong:
        expected, got = first.case.outputs[name], first.got[name]
        yield f"  expected {name} {_short(expected)}\n  got      {name} {_short(got)}"
    sentences = mistakes.explain(subject.name, results)
    for sentence in sentences or ["no known mistake gives these numbers"]:
        yield f"Probably: {sentence}" if sentences else sentence


def _short(value) -> str:
    if not isinstance(value, list | np.ndarray):
        return repr(value)
    array = np.array(value, np.float64)
    return np.array2string(array, precision=6, threshold=60, edgeitems=3).replace("\n", "\n    ")


@dataclasses.dataclass(frozen=True)
class Test:
    """A case as a test: called, it raises AssertionError with the reason."""

    result: Result
    explained: Callable[[], list[str]]

    def __call__(self) -> None:
        assert self.result.passes, "\n".join([reason(self.result), *self.explained()])

    def __str__(self) -> str:
        return self.result.case.name


def cases(name: str, function: Callable) -> list[Test]:
    """A test for each case of a subject for which the function has the options.

    `@pytest.mark.parametrize("case", conformance.cases("yarn", mine), ids=str)`
    """
    called = [r for r in checking.check(checking.load(name), function) if not r.skipped]
    explained = functools.cache(lambda: mistakes.explain(name, called))
    return [Test(result, explained) for result in called]
