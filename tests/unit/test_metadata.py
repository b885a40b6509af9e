"""What a package index and a citation tell, and that it is what the project says of itself."""

import re
import tomllib

import yaml
from running import ROOT

import posenc_jax

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_citation_agrees_with_the_project():
    assert CITATION["title"] == PROJECT["name"] and CITATION["license"] == PROJECT["license"]
    assert CITATION["version"] == posenc_jax.__version__
    assert CITATION["abstract"] == PROJECT["description"]
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert CITATION["authors"] == PROJECT["authors"]
    assert CITATION.get("repository-code") == PROJECT.get("urls", {}).get("Source")


def test_the_pythons_named_are_those_of_the_continuous_tests():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tried = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    names = "\n".join(PROJECT["classifiers"])
    assert re.findall(r"Python :: (3\.\d+)", names) == tried
    assert PROJECT["requires-python"] == f">={tried[0]}"
