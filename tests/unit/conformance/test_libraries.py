"""The stored results of other libraries, and the page's table of them."""

import json
import re

import numpy as np
import pytest

from conformance import checking, linter
from conformance.misreading import Refused, misread
from tests.reference import libraries

STORED = json.loads(libraries.RESULTS.read_text(encoding="utf-8"))


def test_the_page_has_the_table_of_the_stored_results():
    page = libraries.PAGE.read_text(encoding="utf-8")
    assert libraries.BEGIN + libraries.table(STORED) + libraries.END in page


@pytest.mark.parametrize("library", STORED)
def test_stored_results_are_of_the_published_cases(library):
    for name, row in STORED[library]["subjects"].items():
        cases = {case.name for case in checking.load(name).cases}
        assert row["called"] + len(row["skipped"]) == len(cases), name
        assert row["passed"] + len(row["failed"]) == row["called"], name
        assert row["failed"].keys() | row["skipped"].keys() <= cases, name


@pytest.mark.parametrize("library", STORED)
def test_a_library_has_a_sentence_where_a_case_fails(library):
    fails = any(row["failed"] for row in STORED[library]["subjects"].values())
    assert bool(STORED[library]["wrong"]) == fails


def test_the_linter_names_the_model_types_that_were_run():
    configs = [case.inputs["config"] for case in checking.load("configuration").cases]
    assert set(linter.RUN.split()) == {c["model_type"] for c in configs if "model_type" in c}


@pytest.mark.parametrize("key", linter.ENGINES)
def test_the_linter_says_of_an_engine_what_its_run_gave(key):
    """In every case that it was asked, right or wrong, and the wrong number too."""
    engine, row = linter.ENGINES[key], STORED[key]
    assert engine.version == row["version"]
    row = row["subjects"]["configuration"]
    of = re.compile("its model of (.*) was not run")
    not_run = {found[1] for text in row["skipped"].values() if (found := of.match(text))}
    assert set(engine.not_run.split()) == not_run
    for case in checking.load("configuration").cases:
        config, failure = case.inputs["config"], row["failed"].get(case.name)
        if case.name in row["skipped"]:
            continue
        if "model_type" not in config and "layer_types" in config:
            config = config | {"model_type": "laguna"}  # as the adapters had it
        try:
            made = misread(linter.flaws_of(engine, config), **case.inputs)
        except Refused:
            assert failure and failure.startswith("raised"), case.name
            continue
        result = checking.compared(case, {name: np.asarray(made[name]) for name in case.outputs})
        assert result.passes == (failure is None), case.name
        if failure:
            output, at, got = re.match(r"(\w+)(\[\d+\])? .* got (.*)", failure).groups()
            number = made[output][int(at[1:-1])] if at else made[output]
            assert float(got) == pytest.approx(number, rel=1e-3), case.name


def test_messages_to_libraries_quote_what_their_runs_gave():
    sections = libraries.PAGE.with_name("upstream.md").read_text().split("\n## ")[1:]
    for title, *lines in (section.splitlines() for section in sections):
        name, version = title.partition(":")[0].lower().split()
        assert version == STORED[name]["version"]
        failed = [row["failed"] for row in STORED[name]["subjects"].values()]
        given = [f"{case}: {reason}" for each in failed for case, reason in each.items()]
        quoted = [line.strip() for line in lines if line.startswith("    ")]
        assert quoted and all(any(line.endswith(each) for each in given) for line in quoted)
