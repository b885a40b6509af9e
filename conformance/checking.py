"""Call a function with the inputs of a subject's cases and compare what it returns."""

import copy
import dataclasses
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.reference import subjects

VALUES = Path(__file__).parent / "values"


class Misuse(Exception):
    """The function cannot be called as a subject's function is."""


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    inputs: dict[str, Any]  # options at their defaults included
    outputs: dict[str, np.ndarray]  # NaN: not compared
    conventions: dict[str, dict[str, np.ndarray]]  # by other makers, outputs in place of these
    rtol: float
    atol: float


@dataclasses.dataclass(frozen=True)
class Subject:
    name: str
    about: str
    call: str
    defaults: dict[str, Any]
    cases: list[Case]


@dataclasses.dataclass(frozen=True)
class Result:
    """A case with the outputs of a function; error and excess are the largest of all numbers."""

    case: Case
    got: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    error: float = 0.0
    excess: float = 0.0  # the error over its tolerance: above 1 the case fails
    wrong: tuple[str, ...] = ()  # outputs that fail
    convention: str = ""  # of another maker, by which it passes
    skipped: str = ""  # why the case was not called
    failure: str = ""  # what was raised, or which shape is wrong

    @property
    def passes(self) -> bool:
        return not self.failure and not self.wrong


def names() -> list[str]:
    return sorted(path.stem for path in VALUES.glob("*.json"))


def load(name: str) -> Subject:
    contents = json.loads((VALUES / f"{name}.json").read_text(encoding="utf-8"))
    defaults = contents["defaults"]
    cases = [
        Case(
            case["name"],
            defaults | case["inputs"],
            _floats(case["outputs"]),
            {name: _floats(outputs) for name, outputs in case.get("conventions", {}).items()},
            **contents["tolerance"] | case.get("tolerance", {}),
        )
        for case in contents["cases"]
    ]
    return Subject(name, contents["about"], contents["call"], defaults, cases)


def _floats(outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(value, np.float64) for name, value in outputs.items()}


def check(subject: Subject, function: Callable) -> list[Result]:
    """Run all cases; one is skipped where the function lacks an option that it sets, or raises
    NotImplementedError.

    Where another published value of an option that a function lacks leaves fewer outputs wrong,
    its results are those of that variant.
    """
    taken = _parameters(function, subject)
    best = [_result(subject, case, function, taken) for case in subject.cases]
    for name, option, value in _options(subject, taken) if _wrong(best) else ():
        variant = _variant(subject, option, value)
        others = [_result(variant, case, function, taken) for case in variant.cases]
        if _wrong(others) < _wrong(best):
            best = [dataclasses.replace(result, convention=name) for result in others]
    return best


def _wrong(results: Sequence[Result]) -> int:
    """Outputs that are wrong; all of them where a case fails otherwise."""
    return sum(len(r.case.outputs) if r.failure else len(r.wrong) for r in results)


def _options(subject: Subject, taken: set[str] | None) -> list[tuple[str, str, str]]:
    """The options by words that a function lacks, with their values other than the default."""
    words = {name for name, default in subject.defaults.items() if isinstance(default, str)}
    lacking = words - taken - {"layer_type"} if taken is not None else ()
    values = {(name, case.inputs[name]) for name in lacking for case in subject.cases}
    return [
        (f"{name}={value!r} in place of {subject.defaults[name]!r}", name, value)
        for name, value in sorted(values, key=str)
        if value != subject.defaults[name]
    ]


def _variant(subject: Subject, option: str, value: str) -> Subject:
    """The subject with another default, and the outputs that it gives."""
    cases = []
    for case in subject.cases:
        if case.inputs[option] == subject.defaults[option]:
            inputs = case.inputs | {option: value}
            outputs, conventions = computed(subject.name, inputs, list(case.outputs))
            changes = {"inputs": inputs, "outputs": outputs, "conventions": conventions}
            case = dataclasses.replace(case, **changes)
        cases.append(case)
    defaults = subject.defaults | {option: value}
    return dataclasses.replace(subject, defaults=defaults, cases=cases)


def computed(name: str, inputs: Mapping[str, Any], returns: Sequence[str]):
    """Outputs by the reference, and those of other makers by their conventions."""
    outputs = subjects()[name](**{key: argument(value) for key, value in inputs.items()})
    if not isinstance(outputs, dict):
        outputs = {returns[0]: outputs}
    conventions = outputs.pop("conventions", {})
    assert list(outputs) == list(returns), name
    conventions = {name: _arrays(given) for name, given in conventions.items()}
    return _arrays(outputs), conventions


def _arrays(outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in outputs.items()}


def _parameters(function: Callable, subject: Subject) -> set[str] | None:
    """Return the names of the arguments that a function takes, or None if it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    taken = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    given = set(subject.cases[0].inputs)
    required = {
        p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
    }
    unknown, lacking = required - given, given - taken - set(subject.defaults)
    if unknown or lacking:
        which = "takes" if unknown else "lacks"
        listed = ", ".join(sorted(unknown or lacking))
        raise Misuse(f"the function {which} {listed}; it is called by names, as {subject.call}")
    return taken


def _result(subject: Subject, case: Case, function: Callable, taken: set[str] | None) -> Result:
    given = case.inputs if taken is None else {n: v for n, v in case.inputs.items() if n in taken}
    for name, value in case.inputs.items():
        if name not in given and value != subject.defaults[name]:
            return Result(case, skipped=f"no argument {name!r}")
    try:
        returned = function(**{name: argument(value) for name, value in given.items()})
        got = _outputs(returned, case.outputs)
    except Misuse:
        raise
    except NotImplementedError as error:
        return Result(case, skipped=str(error))
    except Exception as error:
        return Result(case, failure=f"raised {type(error).__name__}: {error}", excess=np.inf)
    result = compared(case, got)
    for chosen in sets(case.conventions, 9) if not result.passes else ():
        outputs = {key: value for name in chosen for key, value in case.conventions[name].items()}
        other = dataclasses.replace(case, outputs=case.outputs | outputs)
        if set(outputs) <= set(got) and (found := compared(other, got)).passes:
            return dataclasses.replace(found, case=case, convention="; and ".join(chosen))
    return result


def sets(names, most):
    """All sets of one name, then of two, and so on."""
    return (
        chosen
        for count in range(1, min(most, len(names)) + 1)
        for chosen in itertools.combinations(names, count)
    )


def argument(value):
    """Lists become arrays: float32, or int64 of whole numbers. A configuration is a copy."""
    if not isinstance(value, list):
        return copy.deepcopy(value)
    array = np.array(value)
    return array if array.dtype.kind == "i" else array.astype(np.float32)


def _outputs(returned: Any, expected: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Name what a function returned: a dict, a tuple whose first are the outputs, or the first."""
    if not isinstance(returned, dict):
        values = returned if isinstance(returned, tuple) else (returned,)
        returned = dict(zip(expected, values, strict=False))
    if not returned or not set(returned) <= set(expected):
        names = ", ".join(map(str, returned)) or "no outputs"
        raise Misuse(f"the function returns {names}; outputs are {', '.join(expected)}")
    return {name: _array(name, value) for name, value in returned.items()}


def _array(name: str, value) -> np.ndarray:
    """Convert a list, or an array of NumPy, JAX or torch, to float64."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value if value.is_complex() else value.double()).numpy()
    kind = f"{type(value).__name__}; an output is a number, a list or an array of numbers"
    try:
        array = np.asarray(value)
        if np.iscomplexobj(array):
            kind = "complex numbers; outputs are real: cosines, sines, frequencies"
        elif array.dtype != object:
            return array.astype(np.float64)
    except ValueError:  # a list of unequal parts, words
        pass
    raise Misuse(f"the function returns {name} as {kind}")


def compared(case: Case, got: dict[str, np.ndarray]) -> Result:
    """Compare outputs; axes of size 1 do not count."""
    error = excess = 0.0
    wrong = []
    for name, values in got.items():
        expected = case.outputs[name]
        if np.squeeze(values).shape != np.squeeze(expected).shape:
            shapes = f"{values.shape}, expected {expected.shape}"
            return Result(case, got, np.inf, np.inf, (name,), failure=f"{name} has shape {shapes}")
        values = values.reshape(expected.shape)
        seen = ~np.isnan(expected)
        off = np.abs(np.where(seen, values - expected, 0))
        off = np.where(np.isnan(off), np.inf, off)
        allowed = np.where(seen, case.atol + case.rtol * np.abs(expected), 1)
        over = off / np.maximum(allowed, 1e-30)
        error, excess = max(error, off.max()), max(excess, over.max())
        if over.max() > 1:
            wrong.append(name)
    return Result(case, got, float(error), float(excess), tuple(wrong))


def worst_place(result: Result, output: str) -> tuple[int, ...]:
    """Return the index of the largest error of an output."""
    expected = result.case.outputs[output]
    off = np.abs(result.got[output].reshape(expected.shape) - expected)
    off = np.where(np.isnan(expected), -1, np.where(np.isnan(off), np.inf, off))
    return np.unravel_index(int(np.argmax(off)), off.shape)


def reason(result: Result) -> str:
    """Why a case fails: what was raised, or the first wrong output where it is farthest off."""
    if result.failure:
        return result.failure.splitlines()[0]
    output = result.wrong[0]
    place = worst_place(result, output)
    expected = result.case.outputs[output]
    got = result.got[output].reshape(expected.shape)
    at = [int(index) for index in place] or ""
    return f"{output}{at} should be {expected[place]:.6g}, got {got[place]:.6g}"
