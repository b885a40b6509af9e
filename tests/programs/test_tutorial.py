"""The tutorial runs as it is written, and was committed with what it says and shows."""

import json
import re
import shutil

import pytest
from running import ROOT, python

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
# The cells need nothing of a notebook server: one namespace, in order.
RUNNER = """
import contextlib, io, json
space, said = {"__name__": "__main__"}, []
for number, source in enumerate(json.load(open("cells.json"))):
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen):
        exec(compile(source, f"cell {number}", "exec"), space)
    said.append(screen.getvalue())
space["figure"].savefig("picture.png")
named = [text.get_text() for text in space["figure"].axes[0].texts]
print(json.dumps({"said": said, "losses": space["losses"], "named": named}))
"""


@pytest.fixture(scope="module")
def cells():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def text_of(cell):
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def words(text):
    """Without numbers, which other versions and machines change in the last digits."""
    return re.sub(r"-?\d[\d.,]*", "#", text).split()


@pytest.mark.slow  # it trains for two minutes
def test_the_tutorial_trains_models_draws_their_curves_and_says_what_it_said(cells, tmp_path):
    """In a copy of the checkout."""
    for folder in ("configs", "models", "posenc_jax"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    sources = ["".join(cell["source"]) for cell in cells]
    (tmp_path / "cells.json").write_text(json.dumps(sources))
    here = {"TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "MPLBACKEND": "Agg"}
    optimised = {"XLA_FLAGS": ""}  # the suite compiles without, which costs more than it saves here
    out = python("-c", RUNNER, cwd=tmp_path, env=here | optimised)
    found = json.loads(next(line for line in out.splitlines() if line.startswith('{"said"')))
    assert [words(text) for text in found["said"]] == [words(text_of(cell)) for cell in cells]
    assert found["losses"][-1][1] < found["losses"][0][1] / 2
    assert found["named"] == ["RoPE", "RoPE with YaRN", "mine", "ceiling"]
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    (folder,) = tmp_path.glob("*/rope")
    assert (folder / "eval" / "curves.csv").exists()


def test_the_tutorial_is_committed_as_it_ran_without_traces_of_the_machine(cells):
    assert [cell["execution_count"] for cell in cells] == list(range(1, 1 + len(cells)))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data"}
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    text = "".join(map(text_of, cells))
    assert not re.search(r"/(home|tmp|root|usr|var)\b|tokens/s|0x[0-9a-f]{6}", text)
    assert NOTEBOOK.stat().st_size < 150_000


def test_the_links_of_the_tutorial_name_what_is_there():
    links = re.findall(r"\]\(([^)#]+)", NOTEBOOK.read_text(encoding="utf-8"))
    assert links and all((NOTEBOOK.parent / link).exists() for link in links)
