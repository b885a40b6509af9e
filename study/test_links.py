"""Pages and docstrings of the study name only what exists."""

import re

import pytest
from running import ROOT

from study.cells import STUDY

# The log's commands are those of their day.
PAGES = sorted(set(STUDY.rglob("*.md")) - {STUDY / "LOG.md"})
SOURCES = sorted(set(STUDY.rglob("*.py")) - set(STUDY.glob("test_*.py")))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(STUDY)))
def test_links_name_existing_files(path):
    for link in re.findall(r"\]\(([^)#]+)", path.read_text()):
        assert link.startswith("https://") or (path.parent / link).exists(), link


@pytest.mark.parametrize("path", PAGES + SOURCES, ids=lambda path: str(path.relative_to(STUDY)))
def test_commands_name_existing_files(path):
    text = path.read_text()
    for program, config in re.findall(r"python (\S+\.py)(?:\s+--config=(\S+?\.py))?", text):
        assert (ROOT / program).is_file() and (ROOT / config).exists(), (program, config)
    for module in re.findall(r"python -m ((?:study|benchmarks)[.\w]*)", text):
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for name in re.findall(r"(?:study|configs|docs)/[\w./-]*\w", text):
        assert (ROOT / name).exists(), name


def test_every_page_is_in_the_table():
    table = (STUDY / "README.md").read_text()
    for path in STUDY.glob("*/*.md"):
        assert f"({path.relative_to(STUDY)})" in table, path
