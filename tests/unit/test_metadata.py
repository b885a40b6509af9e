"""What a package index and a citation tell, and that it is what the project says of itself."""

import re
import tomllib

import pytest
import yaml
from running import ROOT

import hatch_build
import posenc_jax

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
README = (ROOT / "README.md").read_text()
LINK = r"(!?)\[[^\]]*\]\(([^)]+)\)"


def links(text):
    """(`!` or nothing, target) of all links that do not stay on the page."""
    return [(mark, to) for mark, to in re.findall(LINK, text) if not to.startswith("#")]


@pytest.fixture
def made():
    """Metadata as hatchling has it after our hook."""

    def make(**project):
        metadata = dict(project)
        hatch_build.Readme(str(ROOT), {}).update(metadata)
        return metadata

    return make


def test_pictures_and_links_lead_into_the_repository_from_outside(made):
    address = "https://code.example/posenc-jax"
    readme = made(urls={"Source": address})["readme"]
    assert readme["content-type"] == "text/markdown"
    found = links(readme["text"])
    assert len(found) == len(links(README))
    assert any(mark for mark, _ in found)
    for (mark, to), (_, before) in zip(found, links(README), strict=True):
        if before.startswith("https://"):
            assert to == before
        else:
            folder = f"{address}/{'raw' if mark else 'blob'}/HEAD/"
            assert to == folder + before and (ROOT / before.partition("#")[0]).exists()


def test_without_an_address_no_link_is_broken(made):
    text = made()["readme"]["text"]
    assert all(not mark and to.startswith("https://") for mark, to in links(text))
    assert "*In the repository, a picture: share of right answers" in text
    assert "Tables, intervals and caveats: docs/results.md." in text
    code = r"(?s)^```.*?^```"
    assert re.findall(code, text, re.M) == re.findall(code, README, re.M)
    assert "](#" not in README  # which no index page is sure to have


def test_the_citation_agrees_with_the_project():
    assert CITATION["title"] == PROJECT["name"] and CITATION["license"] == PROJECT["license"]
    assert CITATION["version"] == posenc_jax.__version__
    assert CITATION["abstract"] == PROJECT["description"]
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert CITATION["authors"] == PROJECT["authors"]
    assert CITATION.get("repository-code") == PROJECT.get("urls", {}).get("Source")


def test_the_citation_has_what_its_format_demands():
    """Citation File Format 1.2.0: required keys, and no others than it knows."""
    required = {"cff-version", "message", "title", "authors"}
    optional = {"type", "abstract", "version", "license", "keywords", "repository-code"}
    assert required <= set(CITATION) <= required | optional
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert all(isinstance(value, str) for key, value in CITATION.items() if key[-1] != "s")
    assert CITATION["authors"] and all(set(author) == {"name"} for author in CITATION["authors"])


def test_the_pythons_named_are_those_of_the_continuous_tests():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tried = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    names = "\n".join(PROJECT["classifiers"])
    assert re.findall(r"Python :: (3\.\d+)", names) == tried
    assert PROJECT["requires-python"] == f">={tried[0]}"
