"""Adding a protocol is one file, shown on a copy of the project: it is checked, evaluated, drawn,
reported and tested, and the numbers of the others stay as they are."""

import json
import shutil

import pytest
from additions import DOUBLED, LAST_THREE
from curves import rows_of
from running import copy_of

PROTOCOLS = "same_token,nonoverlap,sliding,position"


@pytest.fixture
def copy(tmp_path):
    """The project with two more protocols, each a file."""
    folder = tmp_path / "copy"
    folder.mkdir()
    run = copy_of(folder)
    place = folder / "posenc_jax" / "evaluation" / "protocols"
    (place / "last_three.py").write_text(LAST_THREE)
    (place / "doubled.py").write_text(DOUBLED)
    return run


@pytest.mark.slow
def test_a_new_protocol_is_evaluated_and_reported_with_no_other_edit(copy, call, whole, tmp_path):
    here, there = tmp_path / "here" / "run", tmp_path / "there" / "run"
    for workdir in (here, there):
        shutil.copytree(whole[0], workdir)
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none,yarn", "--config.documents=2"]
    call("eval_extrapolation.py", here, *words, f"--config.protocols={PROTOCOLS}")
    words = [f"--workdir={there}", *words]
    more = f"--config.protocols={PROTOCOLS},last_three,doubled"
    out = copy("eval_extrapolation.py", *words, more)
    assert "last_three, the last three targets" in out
    old, new = rows_of(here), rows_of(there)
    added = [row for row in new if row["protocol"] in ("last_three", "doubled")]
    assert [row for row in new if row not in added] == old  # to the last digit
    for name, text in (("last_three", old[0]["text"]), ("doubled", "doubled")):
        chosen = [row for row in added if row["protocol"] == name]
        assert {row["length"] for row in chosen} == {"16", "32", "64"}
        assert {row["text"] for row in chosen} == {text}
        assert len({row["token_hash"] for row in chosen}) == 1
        # The first states no null of its own; the second has that of what it derives from.
        nulls = {bool(row["null_nll"]) for row in chosen if row["length"] == "64"}
        assert nulls == {name == "doubled"}
    hashes = {r["token_hash"] for r in added} & {r["token_hash"] for r in old}
    assert not hashes
    pictures = {path.stem for path in (there / "plots").glob("*.png")}
    assert {"last_three", "doubled", "same_token"} <= pictures
    copy("scripts/report.py", there, f"--out={tmp_path / 'page'}")
    page = (tmp_path / "page" / "index.html").read_text()
    assert "last_three: the last three targets" in page
    assert (tmp_path / "page" / "doubled.png").exists()
    assert "last_three" in copy("scripts/compare.py", there, f"{there}@yarn")
    misspelt = [*words, "--config.protocols=last_thre"]
    assert "did you mean 'last_three'?" in copy("eval_extrapolation.py", *misspelt, code=2)
    assert json.loads((there / "status.json").read_text())["state"] == "done"
