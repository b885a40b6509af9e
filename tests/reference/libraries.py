"""Other libraries against the published values: python tests/reference/libraries.py [LIBRARY ...].

adapters.py calls each library, in a process of its own. conformance/libraries.json holds, by
library, what is installed for it, how far it is run and what is wrong, all written by hand, and
what the cases gave. The table in conformance/README.md is made of it.
"""

import argparse
import importlib
import importlib.metadata
import json
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # the repository, in each process

from conformance import checking, mistakes  # noqa: E402
from conformance.reading import FULL, LONGEST, ORIGINAL  # noqa: E402

RESULTS, PAGE = (HERE.parents[1] / "conformance" / each for each in ("libraries.json", "README.md"))
BEGIN, END = "<!-- from libraries.json -->\n", "<!-- end -->\n"
# Older subjects are asked by the dictionary that their arguments make, of a rope type.
TYPES = {"yarn": "yarn", "longrope": "longrope", "llama3": "llama3", "pi": "linear"}
TYPES |= {"dynamic_ntk": "dynamic"}
KEY_OF = {"scale": "factor", "train_length": ORIGINAL, "low": "low_freq_factor"}
KEY_OF |= {"high": "high_freq_factor", "lambdas": "long_factor", "short": "short_factor"}


def dictionary(kind, head_dim, base, train_length=64, **inputs):
    """A model of one head in the spelling of transformers 4, as Llama's files, or Phi-3's."""
    if inputs.pop("ramp", "dims") != "dims" or inputs.pop("coefficient", 0.1) != 0.1:
        raise NotImplementedError("no such key")
    if kind == "longrope" and inputs["short"] is None:
        inputs["short"] = inputs["lambdas"]
    given = {KEY_OF.get(name, name): value for name, value in inputs.items()}
    given = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in given.items()}
    given = {
        name: value for name, value in given.items() if value is not None and value is not True
    }
    beside = {ORIGINAL: train_length} if kind == "longrope" else {"head_dim": head_dim}
    if kind in ("yarn", "llama3"):
        given[ORIGINAL] = train_length
    return beside | {
        "model_type": "phi3" if kind == "longrope" else "llama",
        "hidden_size": head_dim,
        "num_attention_heads": 1,
        LONGEST: int(train_length * given.get("factor", 1)),
        "rope_theta": base,
        "rope_scaling": {"type": kind, "factor": 1.0} | given,
    }


def derived(functions: dict[str, Callable]) -> dict[str, Callable]:
    """A library's functions by subject, with those that its one function gives."""
    functions = functions.copy()
    rotator, read = functions.pop("rotator", None), functions.get("configuration")
    if read:
        functions |= {name: _older(name, read) for name in TYPES}
    return functions | ({"stale": _stale(rotator)} if rotator else {})


def _older(name, read):
    outputs = checking.load(name).cases[0].outputs

    def function(length=None, **inputs):
        got = read(dictionary(TYPES[name], **inputs), length, FULL)
        return {name: got[name] for name in outputs if name in got}

    return function


def _stale(rotator):
    def function(q, k, base, train_length, prompt, lambdas, short):
        given = {} if lambdas is None else {"lambdas": lambdas, "short": short}
        given |= {"attention_factor": 1.0} if given else {}
        kind = "longrope" if given else "dynamic"
        rotate = rotator(dictionary(kind, q.shape[-1], base, train_length, **given))
        keys, logits = rotate(k[:prompt], 0), np.full((len(q) - prompt, len(q)), np.nan)
        for row, place in enumerate(range(prompt, len(q))):
            keys = np.concatenate([keys, rotate(k[place : place + 1], place)])
            logits[row, : place + 1] = keys @ rotate(q[place : place + 1], place)[0]
        return logits / np.sqrt(q.shape[-1])

    return function


def results(name: str, wheels: Path) -> dict:
    """Version, and by subject what was passed, called, skipped and wrong."""
    facts = json.loads(RESULTS.read_text(encoding="utf-8"))[name]
    sys.path[:0] = [str(wheels / name), str(HERE)]
    version = importlib.metadata.version(facts["wheels"].partition("==")[0].split()[-1])
    adapter, found = getattr(importlib.import_module("adapters"), name.replace("-", "_")), {}
    for each, function in derived(adapter()).items():
        subject = checking.load(each)
        checked = checking.check(subject, function)
        called = [result for result in checked if not result.skipped]
        failed = [result for result in called if not result.passes]
        if called:
            found[subject.name] = {
                "passed": len(called) - len(failed),
                "called": len(called),
                "worst": float(f"{max(result.error for result in called):.0e}"),
                "failed": {result.case.name: checking.reason(result) for result in failed},
                "skipped": {each.case.name: each.skipped for each in checked if each.skipped},
                "explained": mistakes.explain(subject.name, called) if failed else [],
            }
    return facts | {"version": version, "subjects": found}


def table(libraries: dict) -> str:
    rows = ["| library | how far it was run | cases passed | wrong |", "|---|---|---|---|"]
    for name, row in libraries.items():
        passed = ", ".join(
            f"{subject} {each['passed']}/{each['called']}"
            for subject, each in row["subjects"].items()
        )
        rows.append(f"| {name} {row['version']} | {row['run']} | {passed} | {row['wrong']} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    libraries = json.loads(RESULTS.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="LIBRARY", help="; ".join(libraries))
    parser.add_argument("--wheels", type=Path, default=Path("peers"), help="default: %(default)s")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(libraries):
        parser.error(f"unknown library {', '.join(sorted(unknown))}; have: {', '.join(libraries)}")
    absent = []
    for name in chosen.names or libraries:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            try:
                libraries[name] = alone.submit(results, name, chosen.wheels.resolve()).result()
            except (ImportError, importlib.metadata.PackageNotFoundError) as error:
                command = f"--target={chosen.wheels / name} {libraries[name]['wheels']}"
                absent.append(f"{name}: {error}\n  pip install --no-deps {command}")
                continue
        print(table({name: libraries[name]}).splitlines()[-1])
        for subject, each in libraries[name]["subjects"].items():
            failed = [f"{case}: {reason}" for case, reason in each["failed"].items()]
            lines = failed + [f"Probably: {sentence}" for sentence in each["explained"]]
            print("\n".join(f"  {subject}: {line}" for line in lines))
    RESULTS.write_text(json.dumps(libraries, indent=1) + "\n", encoding="utf-8")
    before, _, after = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = after.partition(END)[2]
    PAGE.write_text(before + BEGIN + table(libraries) + END + after, encoding="utf-8")
    for line in absent:
        print(line, file=sys.stderr)
    return 2 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
