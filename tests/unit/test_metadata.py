"""Consistency of package metadata."""

import re
import tomllib

import yaml
from running import ROOT

import posenc_jax

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == posenc_jax.__version__


def test_declared_python_versions_are_tested_in_ci():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    names = "\n".join(PROJECT["classifiers"])
    assert re.findall(r"Python :: (3\.\d+)", names) == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"
