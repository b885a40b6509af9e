"""Training documents are never scored as held out, under any name of the text."""

import gzip
import json
import re
import shutil

import numpy as np
import pytest
from curves import rows_of
from pyarrow import parquet
from running import script

import posenc_jax
from posenc_jax.evaluation.cells import Store
from posenc_jax.runs import workdir
from posenc_jax.runtime.errors import Stop

SMALL = ["--config.multiples=1,2", "--config.extensions=none", "--config.protocols=nonoverlap"]


def documents(run):
    """Digests of the listed training documents."""
    return {int(line, 16) for line in (run / workdir.TRAINED_ON).read_text().split()}


def evaluated_on(run, call, text, code=0):
    words = ["--config.data.source=text", f"--config.data.path={text}/./*.txt"]
    return call("eval_extrapolation.py", run, *SMALL, *words, code=code)


def as_lines(text, folder):
    lines = [json.dumps({"body": path.read_text() + "\r\n"}) for path in sorted(text.glob("*.txt"))]
    with gzip.open(folder / "lines.jsonl.gz", "wt") as stream:
        stream.write("\n".join(lines))
    fields = {"source": "jsonl", "path": folder / "lines.jsonl.gz", "field": "body"}
    return [f"--config.data.{name}={value}" for name, value in fields.items()]


def as_copies(text, folder):
    """One file per document, elsewhere, under other names, with another end of line."""
    for i, path in enumerate(sorted(text.glob("*.txt"))):
        (folder / f"chapter-{i}.md").write_text(path.read_text() + "\n")
    return ["--config.data.source=text", f"--config.data.path={folder}/*.md"]


@pytest.mark.parametrize("spelled", [as_lines, as_copies])
def test_documents_of_training_are_left_out_under_any_spelling(spelled, run, call, text, tmp_path):
    call("eval_extrapolation.py", run, *SMALL)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    out = call("eval_extrapolation.py", run, *SMALL, *spelled(text, folder))
    left = int(re.search(r"warning: documents that the run was trained on: (\d) of 8", out)[1])
    assert 0 < left < 8
    counts = {row["evaluation"]: int(row["documents"]) for row in rows_of(run)}
    assert len(counts) == 2 and set(counts.values()) == {8 - left}


def test_a_changed_list_is_refused_and_training_writes_it_again(run, call, text, tmp_path):
    listed = documents(run)
    path = run / workdir.TRAINED_ON
    path.write_text(path.read_text()[:17])
    out = evaluated_on(run, call, text, code=65)
    assert "trained_on.txt, the list of training documents, is missing or was changed" in out
    path.unlink()
    assert "is missing or was changed" in evaluated_on(run, call, text, code=65)
    fields = {"init_from": run, "steps": 3, "warmup_steps": 1}
    out = call("train.py", tmp_path / "finer", **fields, code=65)
    assert "is missing or was changed" in out
    assert "already done" in call("train.py", run)
    assert documents(run) == listed
    assert f"trained on: {len(listed)} of 8" in evaluated_on(run, call, text)


def test_training_documents_of_init_from_count_too(run, call, text, tmp_path):
    """The held-out part of the second text may be the first one's training text."""
    fields = {"init_from": run, "data.valid_fraction": 0.55, "steps": 3, "warmup_steps": 1}
    call("train.py", tmp_path / "finer", **fields)
    assert documents(run) <= documents(tmp_path / "finer")
    out = call("eval_extrapolation.py", tmp_path / "finer", *SMALL)
    assert re.search(r"warning: documents that the run was trained on: \d of \d", out)
    call("eval_extrapolation.py", run, *SMALL)
    of_finer, of_first = (rows_of(place)[0]["token_hash"] for place in (tmp_path / "finer", run))
    assert of_finer == of_first


def test_options_are_chosen_on_documents_that_are_not_reported_on(call, tmp_path, text):
    fields = {"data.choose_fraction": 0.5, "data.valid_fraction": 0.25, "steps": 3}
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(40):
        letters = np.random.default_rng([7, i]).choice(list("abcdefgh "), 240)
        (folder / f"{i}.txt").write_text("".join(letters))
    fields |= {"data.path": f"{folder}/*.txt", "warmup_steps": 1}
    call("train.py", tmp_path / "run", **fields)
    call("eval_extrapolation.py", tmp_path / "run", *SMALL)
    out = call("eval_extrapolation.py", tmp_path / "run", *SMALL, "--config.data.part=choose")
    assert "this one is choose" in out
    found = {row["evaluation"]: row for row in rows_of(tmp_path / "run")}
    assert set(found) == {"held-out", "choose"}
    assert found["choose"]["text"].startswith("to choose on, of text:")
    assert found["choose"]["token_hash"] != found["held-out"]["token_hash"]


def test_a_run_without_a_third_split_has_none_to_choose_on(run, call):
    out = call("eval_extrapolation.py", run, *SMALL, "--config.data.part=choose", code=65)
    assert "train it with data.choose_fraction above 0" in out


def test_another_field_or_part_of_a_text_is_another_text(call, tmp_path):
    lines = [
        {
            "text": "".join(np.random.default_rng([i, 1]).choice(list("abcd "), 240)),
            "body": "x" * 99,
        }
        for i in range(30)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    fields = {"data.source": "jsonl", "data.path": tmp_path / "a.jsonl", "data.field": "text"}
    fields |= {"data.choose_fraction": 0.3, "data.valid_fraction": 0.3, "steps": 3}
    run = tmp_path / "run"
    call("train.py", run, **fields, **{"data.cache": tmp_path / "cache"})
    own = ["--config.data.source=jsonl", f"--config.data.path={tmp_path}/a.jsonl"]
    out = call("eval_extrapolation.py", run, *SMALL, *own, "--config.data.field=body", code=65)
    assert "Up to length 98" in out or "1 of 1 documents" in out  # what body holds
    call("eval_extrapolation.py", run, *SMALL, "--config.name=x")
    words = ["--config.name=x", "--config.data.part=choose"]
    out = call("eval_extrapolation.py", run, *SMALL, *words, code=2)
    assert "name = 'x' is used by an evaluation of another text" in out
    words = ["--config.name=held-out", "--config.data.part=choose"]
    out = call("eval_extrapolation.py", run, *SMALL, *words, code=2)
    assert "name = 'held-out' is reserved for the run's own text" in out


EDITS = [
    ("encoding", "layout", "bogus"),
    ("encoding", "fraction", True),  # which equals 1.0
    (None, "seed", 1),
]


@pytest.mark.parametrize(("group", "name", "value"), EDITS)
def test_a_configuration_that_is_not_the_sealed_one_is_refused(group, name, value, run, call):
    path = run / "config.json"
    fields = json.loads(path.read_text())
    (fields[group] if group else fields)[name] = value
    path.write_text(json.dumps(fields))
    out = call("eval_extrapolation.py", run, *SMALL, code=76)
    assert f"{group + '.' if group else ''}{name}: " in out and "in config.json" in out
    with pytest.raises(Stop, match="differs from the checkpoint of step 12") as caught:
        posenc_jax.load_run(run)
    assert caught.value.code == 76


def test_a_configuration_without_a_card_that_describes_no_model_is_refused(run):
    path = run / "config.json"
    path.write_text(path.read_text().replace('"fraction": 1.0', '"fraction": true'))
    for card in run.glob("checkpoints/*/card/metadata"):
        card.unlink()
    with pytest.raises(Stop, match="describes no model: fraction must be .*; got True"):
        posenc_jax.load_run(run)


def test_scripts_hold_a_configuration_against_the_sealed_one_too(run, call):
    call("eval_extrapolation.py", run, *SMALL)
    path = run / "config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"seed": 3}))
    for words in (
        ["diagnose.py", run],
        ["report.py", run, f"--out={run}/report"],
        ["compare.py", run, f"{run}@window"],
        ["plot_curves.py", run, f"--out={run}/pictures"],
        ["plot_encodings.py", run, f"--out={run}/encodings"],
    ):
        assert "seed: 0 sealed, 3 in config.json" in script(*words, code=76)


def test_cells_are_believed_by_what_they_hold(run, call):
    """One is copied over another, one is cut, and any byte of an archive's directory is changed."""
    more = [*SMALL, "--config.protocols=nonoverlap,position"]
    call("eval_extrapolation.py", run, *more)
    before = (run / "eval" / "curves.csv").read_text()
    copied, overwritten, shortened, flipped = sorted((run / "eval" / "cells").glob("*.npz"))[:4]
    store, whole = Store(flipped.parent), flipped.read_bytes()
    right, begin = store.get(flipped.stem), whole.index(b"PK\x01\x02")
    for place in [*range(0, begin, 97), *range(begin, len(whole))]:
        flipped.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        found = store.get(flipped.stem)
        if found is not None:  # what is flipped says nothing, such as a date
            for one, other in zip(found[1:], right[1:], strict=True):
                np.testing.assert_array_equal(one, other)
    flipped.write_bytes(whole[: begin + 10])
    shutil.copy(copied, overwritten)
    shortened.write_bytes(shortened.read_bytes()[:-100])
    out = call("eval_extrapolation.py", run, *more)
    assert len(set(re.findall(r"(\w+\.npz) is computed again", out))) == 3
    assert (run / "eval" / "curves.csv").read_text() == before


def test_a_record_without_a_column_is_refused(run, call):
    call("eval_extrapolation.py", run, *SMALL)
    path = run / "eval" / "sums.parquet"
    rows = parquet.read_table(path)
    parquet.write_table(rows.drop_columns(["nats"]), path)
    out = script("compare.py", run, f"{run}@window", code=74)
    assert "sums.parquet: " in out and "run eval_extrapolation.py again" in out
    call("eval_extrapolation.py", run, *SMALL)
    script("compare.py", run, f"{run}@window")


def test_a_run_of_another_format_is_refused_in_a_line(run, call):
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    out = call("eval_extrapolation.py", run, *SMALL, code=74)
    assert "it has format 2, and this version reads 4" in out
    assert len(out.strip().splitlines()) == 1
