"""Check a function against the published values of a subject, or a model's config.json.

    python -m conformance --list
    python -m conformance yarn                            # how the function is called
    python -m conformance yarn my_module:yarn_inv_freq
    python -m conformance config.json [--engine=vllm]

Exit codes: 0 all is right, 1 something is wrong, 2 nothing was checked.
"""

import argparse
import difflib
import importlib
import os
import signal
import sys

import numpy as np

from conformance import checking, linter, report
from conformance.checking import Misuse, Subject


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m conformance", description="Check a function, or a config.json, by known values."
    )
    parser.add_argument("subject", nargs="?", help="yarn, ...: see --list; or a config.json")
    parser.add_argument("function", nargs="?", help="MODULE:FUNCTION, found from this folder")
    parser.add_argument("--engine", help="judge a config.json for this engine alone")
    parser.add_argument("--list", action="store_true", help="list subjects and how they are called")
    given = parser.parse_args(arguments)
    if given.list or not given.subject:
        for name in checking.names():
            subject = checking.load(name)
            print(f"{len(subject.cases):3} cases  {subject.call}")
            print(f"           {subject.about.splitlines()[0]}")
        return 0
    try:
        if given.subject not in checking.names() and (path := _file(given.subject)):
            lines, right = linter.lint(path, given.engine and given.engine.lower())
            print("\n".join(lines))
            return 0 if right else 1
        subject = checking.load(_known(given.subject))
        if not given.function:
            _describe(subject)
            return 0
        results = checking.check(subject, find(given.function))
        print("\n".join(report.lines(subject, results)))
        return 0 if all(result.passes for result in results) else 1
    except Misuse as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2


def _file(given: str) -> str | None:
    """A model's config.json, which may be given by its folder."""
    if os.path.isdir(given):
        return os.path.join(given, "config.json")
    return given if os.path.isfile(given) or given.endswith(".json") else None


def _known(name: str) -> str:
    if name in checking.names():
        return name
    close = difflib.get_close_matches(name, checking.names(), 1)
    guess = f"; did you mean {close[0]!r}" if close else ""
    raise Misuse(f"unknown subject {name!r}{guess}; see --list")


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


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of `| head`
    sys.exit(main())
