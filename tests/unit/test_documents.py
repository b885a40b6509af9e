"""Documents cover every choice and output, and name only what exists."""

import inspect
import re

import pytest
from running import ROOT, committed

from posenc_jax import extensions, registry, schemes
from posenc_jax.config import schema

README = (ROOT / "README.md").read_text()
ENCODINGS = (ROOT / "docs" / "encodings.md").read_text()
EVALUATION = (ROOT / "docs" / "evaluation.md").read_text()
UNKNOWN = {"n_layer"}  # which the error answers with ours
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def in_first_cells(text):
    """Return the names in the first cell of every table row."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def sections(path):
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_encoding_has_a_row():
    assert set(committed(schemes.names(), "posenc_jax", "schemes")) <= in_first_cells(ENCODINGS)


def test_every_extension_has_a_row():
    names = committed(extensions.records(), "posenc_jax", "extensions")
    assert "yarn" in names and set(names) <= in_first_cells(ENCODINGS)


def test_the_readme_counts_encodings_and_extensions():
    encodings = committed(schemes.names(), "posenc_jax", "schemes")
    written = committed(extensions.records(), "posenc_jax", "extensions")
    names = [n for n in extensions.records() if re.sub("^(dynamic|stepped)_", "", n) in written]
    assert f" {len(encodings)} position encodings " in README
    assert f" {len(names) - ('none' in names)} context extensions " in README


def test_a_file_cites_the_papers_of_its_row():
    """An idea of one's own has no paper."""
    rows = [row for row in ENCODINGS.splitlines() if row.startswith("| `") and "/abs/" in row]
    assert len(rows) > 25
    for row in rows:
        papers = re.findall(r"/abs/([\d.]+)", row)
        for name in re.findall(r"`(\w+)`", row.split("|")[1]):
            record = extensions.records().get(name)
            module = schemes.find(name) if record is None else inspect.getmodule(record.apply)
            text = inspect.getsource(module)
            assert all(f"arXiv:{paper}" in text for paper in papers), name


def test_every_protocol_has_a_row():
    names = committed(registry.protocols(), "posenc_jax", "evaluation", "protocols")
    assert set(names) <= in_first_cells(EVALUATION)


@pytest.mark.parametrize(
    ("document", "folder", "encodings"),
    [("runs.md", "configs", schemes.names()), ("sweeps.md", "configs/sweeps", ())],
)
def test_every_recipe_and_sweep_has_a_row(document, folder, encodings):
    names = {path.stem for path in (ROOT / folder).glob("*.py")} - set(encodings)
    rows = in_first_cells((ROOT / "docs" / document).read_text())
    assert set(committed(names, folder)) <= rows | {"__init__"}


def test_every_script_is_documented():
    text = "".join(path.read_text() for path in [*DOCUMENTS, ROOT / "Makefile"])
    for name in committed([path.stem for path in (ROOT / "scripts").glob("*.py")], "scripts"):
        assert f"scripts/{name}.py" in text, name


def test_every_document_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    for path in set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "index.md"}:
        assert f"({path.name})" in index


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_commands_name_existing_files(path):
    text = path.read_text()
    for link, section in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        target = path.parent / link if link else path
        assert link.startswith("https://") or target.exists(), link
        assert not section or link.startswith("https://") or section in sections(target), section
    for program, config in re.findall(r"python (\S+\.py)(?: --config=(\S+\.py))?", text):
        assert (ROOT / program).is_file() and (ROOT / config).exists(), (program, config)


def test_fields_in_commands_exist():
    described = [*schema.explained(schema.Training), *schema.explained(schema.Evaluation)]
    known = {line.strip().partition("=")[0] for line in described}
    for name in schemes.names():
        known |= {
            f"encoding.{word}" for word in inspect.signature(schemes.find(name).build).parameters
        }
    for path in DOCUMENTS:
        for field in re.findall(r"--(?:config|evaluate)\.([a-z_.]+)", path.read_text()):
            assert field.rstrip(".") in known | UNKNOWN, (path.name, field)
