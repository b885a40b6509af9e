"""scripts/extend.py: what it measures is what an evaluation measures, and it says so."""

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from llamas import LLAMA, write
from running import ROOT, here

import posenc_jax
from posenc_jax.advice import paste
from posenc_jax.evaluation.protocols.copies import usable_length
from posenc_jax.runtime.files import read_csv

L, N = 128, 640


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A model, and twenty texts."""
    folder = tmp_path_factory.mktemp("extend")
    write(folder / "model", config=LLAMA | {"max_position_embeddings": L})
    (folder / "texts").mkdir()
    for number in range(20):
        letters = np.random.default_rng(number).choice(list("abcdefgh "), 2 * N)
        (folder / "texts" / f"{number}.txt").write_text("".join(letters))
    return folder


@pytest.fixture
def extend(given):
    """Run the program on the model, and return what it prints."""

    def run(*words, code=0, source=given / "model", to=N, workdir=given / "answer"):
        text = [] if "--text" in " ".join(words) else [f"--text={given}/texts/*.txt"]
        given_words = (source, f"--to={to}", f"--workdir={workdir}", *text, *words)
        return here("scripts/extend.py", *given_words, code=code)

    return run


@pytest.fixture(scope="module")
def answered(given):
    """The answer of a run that was killed once."""
    words = [sys.executable, "scripts/extend.py", given / "model", f"--to={N}"]
    words += [f"--text={given}/texts/*.txt", f"--workdir={given}/answer"]
    pipe, said = subprocess.PIPE, ""
    with subprocess.Popen(words, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        for line in process.stdout:
            said += line
            if line.startswith("none: "):
                process.send_signal(signal.SIGTERM)
        said += process.stderr.read()
    assert process.returncode == 75, said
    before = len(list((given / "answer" / "cells").iterdir()))
    done = here("scripts/extend.py", *words[2:])
    assert f"{before} of {before} cells cached" in done  # of no extension
    return given / "answer", said, done, read_csv(given / "answer" / "rows.csv")


def test_it_says_what_it_will_do_before_it_reads_the_weights(answered):
    _, said, *_ = answered
    plan, _, rest = said.partition("reading 21 arrays")
    assert re.search(r"13,136 parameters, L = 128; rows of 640 tokens, prompts of 16 and 128", plan)
    assert "minutes here" in plan and "GiB" in plan and "rule: " in plan
    assert "may know this text" in rest


def test_it_writes_a_claim_a_table_a_picture_and_what_to_paste(answered):
    folder, _, done, rows = answered
    page = (folder / "extend.md").read_text()
    methods = [row["method"] for row in rows]
    assert methods[0] == "none" and len(set(methods)) > 8
    assert {row["texts"] for row in rows} == {"2", "10"}
    claim = page.splitlines()[2]
    assert (
        claim.startswith("No method reads all of 640 tokens, so none is advised; ")
        and claim in done
    )
    assert "![share kept and price](extend.png)" in page and (folder / "extend.png").exists()
    named = re.findall(r"paste/\S+", page)
    assert named and {folder / name for name in named} == {*(folder / "paste").iterdir()}
    assert all(engine in page for engine in paste.NAMES)
    shown = (folder / "index.html").read_text()
    assert "<svg" in shown and all(path.name in shown for path in (folder / "paste").iterdir())


def test_its_numbers_are_those_of_an_evaluation(answered, given):
    folder, _, _, written = answered
    rows = {(row["method"], row["texts"]): row for row in written}
    method = next(name for name, texts in rows if texts == "10" and name != "none")
    fields = {"data.source": "text", "data.path": f"{given}/texts/*.txt", "window": False}
    fields |= {"extensions": f"none,{method}", "documents": 10, "windows": 1}
    copies = posenc_jax.evaluate(
        folder / "run", fields | {"lengths": f"{N}", "protocols": "copies"}
    )
    own = [row for row in copies if row["method"] == method]
    assert usable_length(own) == int(rows[method, "10"]["usable"]) % N
    for row in own:
        if row["part"].isdigit() and row["share"] is not None:
            kept = float(rows[method, "10"][f"kept_{row['part']}"])
            assert row["share"] == pytest.approx(kept, rel=1e-5)
    fields |= {"protocols": "same_token", "lengths": "16,128", "last": 4, "name": "prompts"}
    short = posenc_jax.evaluate(folder / "run", fields)
    for length in (16, 128):
        theirs, ours = (
            row["nll"] for row in short if row["length"] == length
        )  # in the order of extensions
        price = float(rows[method, "10"][f"price_{length}"])
        assert ours - theirs == pytest.approx(price, abs=1e-5)


def test_another_length_reads_the_cells_of_prompts_again(answered, extend):
    said = extend("--minutes=0.001", to=512)
    assert re.search(r"\b4 of \d+ cells cached", said)
    assert (
        "Left out, for --minutes: screening from yarn" in said
        and "Provisional, over 2 documents" in said
        and "no extension was measured" in said
        and "is read right" not in said
    )


def test_it_tunes_and_says_whether_it_was_worth_it(answered, extend):
    said = extend("--minutes=0.001", "--tune=lora:steps=2:batch_size=2:train_length=64", to=512)
    (line,) = re.findall(r"Tuning by .*", said)
    assert re.search(r": (not )?worth it, over \d+ documents that it was not trained on\.", line)


def test_a_run_is_measured_where_it_is(answered, given):
    rows, choice = posenc_jax.advise(
        answered[0] / "run", N, workdir=given / "other", text=f"{given}/texts/*.txt", minutes=0
    )
    assert not (given / "other" / "run").exists() and choice.method is None
    (same,) = [row for row in answered[3] if (row["method"], row["texts"]) == ("none", "2")]
    assert [row["least"] for row in rows] == [float(same["least"])]


def test_a_dry_run_computes_nothing(extend, given):
    said = extend("--dry_run", workdir=given / "dry")
    assert "minutes here" in said and not (given / "dry").exists()


def refused(extend, words, **options):
    said = extend(*words, code=2, **options)
    assert said.count("error: ") == 1, said
    return said.rpartition("error: ")[2]


def test_what_is_typed_wrong_is_refused_in_a_line(answered, extend, given):
    assert "have: exllamav3, llama.cpp" in refused(extend, ["--engine=vlm"])
    assert "from 16 to --to=640" in refused(extend, ["--prompts=8,640"])
    assert "unknown recipe 'lorra'" in refused(extend, ["--tune=lorra"])
    assert f"is of {given}/model" in refused(extend, [], source=given / "model" / ".." / "model")
    assert "SOURCE must be" in refused(extend, [], source=given / "texts" / "0.txt")
    config = {"model_type": "bert"}
    (given / "bert").mkdir()
    (given / "bert" / "config.json").write_text(json.dumps(config))
    assert "bert" in refused(extend, [], source=given / "bert")
    assert "copies needs a length of 256" in refused(extend, [], to=200)
    said = extend(to=100_000, code=65)
    assert "longest window" in said and "longer text" in said
