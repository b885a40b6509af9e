"""Compute the outputs in values/*.json from their inputs: python -m tests.published.

A new case is its name and inputs in the file of its subject; a new subject is a function of
`reference` and a file with its cases.
"""

import inspect
import json
import re
from typing import Any

import numpy as np

from conformance.checking import VALUES, computed
from conformance.reference import subjects


def completed(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a file from its hand-written fields: returns, tolerance and cases."""
    reference = subjects()[name]
    parameters = inspect.signature(reference).parameters.values()
    cases = []
    for case in given["cases"]:
        outputs, conventions = computed(name, case["inputs"], given["returns"])
        made = {"outputs": outputs} | ({"conventions": conventions} if conventions else {})
        written = {key: case[key] for key in case if key not in ("outputs", "conventions")}
        cases.append(written | {key: _plain(value) for key, value in made.items()})
    return {
        "subject": name,
        "about": re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(reference) or ""),
        "call": f"{name}({', '.join(p.name for p in parameters)})",
        "defaults": {p.name: p.default for p in parameters if p.default is not p.empty},
        "returns": given["returns"],
        "tolerance": given["tolerance"],
        "cases": cases,
    }


def _plain(value):
    """Nested lists, with None where nothing is compared and no zero below 0."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if value != value else value + 0 if isinstance(value, float) else value


def text(contents: dict[str, Any]) -> str:
    """JSON with a line for each field, and three for each case."""
    fields = [
        f" {json.dumps(name)}: {json.dumps(value)}"
        for name, value in contents.items()
        if name != "cases"
    ]
    cases = [
        ",\n   ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in case.items())
        for case in contents["cases"]
    ]
    listed = ",\n".join(f"  {{{case}}}" for case in cases)
    return "{\n" + ",\n".join([*fields, f' "cases": [\n{listed}\n ]']) + "\n}\n"


def main() -> None:
    for path in sorted(VALUES.glob("*.json")):
        given = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(text(completed(path.stem, given)), encoding="utf-8")


if __name__ == "__main__":
    main()
