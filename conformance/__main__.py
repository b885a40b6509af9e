"""Check a function against the published values of a subject.

    python -m conformance --list
    python -m conformance yarn                            # how the function is called
    python -m conformance yarn my_module:yarn_inv_freq

Exit codes: 0 all cases pass, 1 a case fails, 2 nothing was checked.
"""

import argparse
import difflib
import importlib
import sys

import numpy as np

from conformance import checking, mistakes
from conformance.checking import Misuse, Result, Subject


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m conformance", description="Check a function against published values."
    )
    parser.add_argument("subject", nargs="?", help="yarn, alibi, ...; see --list")
    parser.add_argument("function", nargs="?", help="MODULE:FUNCTION, found from this folder")
    parser.add_argument("--list", action="store_true", help="list subjects and how they are called")
    given = parser.parse_args(arguments)
    if given.list or not given.subject:
        for name in checking.names():
            subject = checking.load(name)
            print(f"{len(subject.cases):3} cases  {subject.call}")
        return 0
    try:
        subject = checking.load(_known(given.subject))
        if not given.function:
            _describe(subject)
            return 0
        return _report(subject, checking.check(subject, find(given.function)))
    except Misuse as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2


def _known(name: str) -> str:
    if name in checking.names():
        return name
    close = difflib.get_close_matches(name, checking.names(), 1)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    raise Misuse(f"unknown subject {name!r}{guess} See --list")


def find(path: str):
    """Import MODULE:FUNCTION; the function may be an attribute of an object."""
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise Misuse(f"the function must be given as MODULE:FUNCTION; got {path!r}")
    try:
        found = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise Misuse(f"cannot import {path}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise Misuse(f"{path} cannot be called")
    return found


def _describe(subject: Subject) -> None:
    print(f"{subject.call}\n\n{subject.about}\n")
    case = subject.cases[0]
    for name, value in case.outputs.items():
        print(f"returns: {name}, {_kind(value)} in the first case")
    print(f"within rtol {case.rtol:g}, atol {case.atol:g}; nan: not compared")
    for name, value in case.inputs.items():
        if isinstance(value, list):
            print(f"array:   {name}, {_kind(checking.argument(value))} in the first case")
    for name, value in subject.defaults.items():
        print(f"default: {name} = {value!r}")
    for case in subject.cases:
        print(f"case: {case.name}")


def _kind(value: np.ndarray) -> str:
    return f"{value.dtype} {list(value.shape)}" if value.ndim else "a number"


def _report(subject: Subject, results: list[Result]) -> int:
    print(f"{subject.call}\n{subject.about.splitlines()[0]}\n")
    for result in results:
        verdict = "skip" if result.skipped else "ok" if result.passes else "FAIL"
        detail = result.skipped or result.failure or f"{result.error:.1e}"
        print(f"{verdict:4}  {result.case.name:55}  {detail}")
    called = [result for result in results if not result.skipped]
    failed = [result for result in called if not result.passes]
    worst = max((result.error for result in called), default=0.0)
    print(f"\n{len(called) - len(failed)} of {len(called)} cases pass; worst error {worst:.2g}")
    unseen = [name for name in subject.cases[0].outputs if called and name not in called[0].got]
    if unseen and called[0].got:
        print(f"not returned, so not checked: {', '.join(unseen)}")
    if not called:
        raise Misuse("no case could be called")
    if failed:
        _explain(subject, failed)
    return 1 if failed else 0


def _explain(subject: Subject, failed: list[Result]) -> None:
    first = failed[0]
    print(f"\nThe first case that fails: {first.case.name}")
    for name, value in first.case.inputs.items():
        if value != subject.defaults.get(name):
            print(f"  {name} = {_short(value)}")
    if first.failure:
        print(f"  {first.failure}")
    for name in first.wrong:
        expected, got = first.case.outputs[name], first.got[name]
        print(f"  expected {name} {_short(expected)}\n  got      {name} {_short(got)}")
        if not first.failure:
            place = checking.worst_place(first, name)
            index = f"[{', '.join(map(str, place))}]" if place else ""
            at = got.reshape(expected.shape)[place]
            print(f"  {name}{index} should be {expected[place]:.9g}, got {at:.9g}")
    for sentence in mistakes.explain(subject.name, failed):
        print(f"Probably: {sentence}")


def _short(value) -> str:
    if not isinstance(value, list | np.ndarray):
        return repr(value)
    array = np.array(value, np.float64)
    return np.array2string(array, precision=6, threshold=60, edgeitems=3).replace("\n", "\n    ")


if __name__ == "__main__":
    sys.exit(main())
