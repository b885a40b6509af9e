"""Consistency of package metadata."""

import re
import tomllib

import yaml
from running import ROOT

import posenc_jax

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def workflow(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def test_citation_and_changelog_have_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == posenc_jax.__version__
    (newest, *_) = re.findall(r"^## (\d.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == posenc_jax.__version__


def test_ci_runs_the_commands_of_the_documents_on_the_oldest_and_newest_python():
    job = workflow("ci.yml")["jobs"]["test"]
    names = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == [names[0], names[-1]]
    assert PROJECT["requires-python"] == f">={names[0]}"
    commands = {step.get("run") for step in job["steps"]}
    assert {"make demo", "make test", "make test-programs", "make study", "make lint"} <= commands


def test_a_release_is_tested_and_needs_no_password():
    jobs = workflow("release.yml")["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert set(jobs["publish"]["needs"]) == {"test", "build"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets" not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    for path in re.findall(r"tests/\S+\.py", str(jobs["build"])):
        assert (ROOT / path).is_file()
