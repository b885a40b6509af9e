"""Texts of the programs: third splits, and tokenizers that lose characters."""

import json
import re
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from curves import rows_of
from lossy import LOSSY
from prepared_texts import letters
from running import CLOSED, ROOT, python, script

import posenc_jax
from posenc_jax.data import tokenizer
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runtime.errors import DataError


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(30):
        (folder / f"{i:02d}.txt").write_text(letters(i))
    return folder


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["train.py", "--config.data.source=hub", "--config.data.path=maker/none"], "maker/none"),
        (["train.py", "--config.data.tokenizer=maker/none"], "data.tokenizer: there is no file"),
        (["scripts/adopt.py", "maker/none"], "there is no folder 'maker/none'"),
    ],
)
def test_without_the_hub_a_program_ends_at_once_and_in_one_line(words, what, tmp_path):
    recipe = [f"--config={ROOT}/configs/rope.py"] if words[0] == "train.py" else []
    words += [*recipe, f"--workdir={tmp_path / 'run'}"]
    begin = time.monotonic()
    out = python(*words, code=65, env={"HF_ENDPOINT": CLOSED, "HF_HOME": str(tmp_path / "hf")})
    assert time.monotonic() - begin < 20 and len(out.splitlines()) == 1
    assert what in out and f"{CLOSED} is out of reach" in out and f"{tmp_path}/hf" in out


def test_two_processes_build_one_corpus(folder, tmp_path):
    code = (
        "import sys, json\nfrom posenc_jax.data import sources\n"
        "from posenc_jax.data.prepare import prepare\n"
        "source, _ = sources.read(json.loads(sys.argv[1]), 128)\n"
        "print(prepare(source, 0, quiet=True).fingerprint)"
    )
    fields = {"source": "text", "path": f"{folder}/*.txt", "cache": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, json.dumps(fields)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in "ab"]
    prints = {process.communicate()[0] for process in both}
    assert [process.returncode for process in both] == [0, 0] and len(prints) == 1
    left = [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert len(left) == 1  # no scratch folder


@pytest.fixture
def lossy_text(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "many").mkdir()
    for i in range(12):
        text = "".join(rng.choice(list("abcdef É"), 240))
        (tmp_path / "many" / f"{i}.txt").write_text(text)
    learned = LOSSY["no_accents"]()
    learned.save(str(tmp_path / "lossy.json"))
    return {
        "data.path": f"{tmp_path}/many/*.txt",
        "data.cache": tmp_path / "cache",
        "data.tokenizer": tmp_path / "lossy.json",
    }


def test_training_states_no_bits_per_byte_of_it(lossy_text, call, tmp_path, monkeypatch):
    import wandb

    logged = []
    ignored = lambda *words, **options: None  # noqa: E731
    run = SimpleNamespace(log=logged.append, define_metric=ignored, finish=ignored)
    run.summary, run.url, run.dir = {}, "", ""
    monkeypatch.setattr(wandb, "init", lambda **options: run)
    fields = {"data.choose_fraction": 0.3, "wandb.mode": "online", "steps": 6, "valid_every": 6}
    out = call("train.py", tmp_path / "run", **lossy_text, **fields)
    assert "loses text: 12 of the first 12 documents decode to other text" in out
    assert out.count("warning: ") == 1 and "bits/byte" not in out
    assert re.search(r"documents held out; \d+ to choose on; no bits per byte, the tokenizer", out)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [3, 6]
    for line in lines:
        assert line["bpb"] is None and line["loss"] > 0
    assert lines[1]["valid_bpb"] is None is lines[1]["choose_bpb"]
    assert lines[1]["choose_loss"] > 0
    assert f"held out: loss {lines[1]['valid_loss']:.4f}  to choose on: loss" in out
    assert len(logged) == 2 and all("train/loss" in line for line in logged)
    assert not any("bpb" in name for line in logged for name in line)


def test_training_measures_both(call, folder, tmp_path):
    fields = {"data.path": f"{folder}/*.txt", "data.cache": tmp_path / "cache"}
    fields |= {"data.valid_fraction": 0.3, "data.choose_fraction": 0.3}
    out = call("train.py", tmp_path / "run", **fields)
    assert int(out.split(" documents held out; ")[1].split(" to choose on")[0]) > 0
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    measured = [line for line in lines if "choose_loss" in line]
    assert [line["step"] for line in measured] == [5, 10, 12]
    for line in measured:
        for name in ("valid", "choose"):
            assert line[f"{name}_loss"] / np.log(2) == pytest.approx(line[f"{name}_bpb"], 1e-6)
        assert line["choose_loss"] != line["valid_loss"]
        said = (
            f"step {line['step']}  held out: loss {line['valid_loss']:.4f}  "
            f"bits/byte {line['valid_bpb']:.4f}  to choose on: loss "
            f"{line['choose_loss']:.4f}  bits/byte {line['choose_bpb']:.4f}\n"
        )
        assert said in out
    fields |= {"data.valid_fraction": 0.0, "steps": 5}
    out = call("train.py", tmp_path / "alone", **fields)
    line = read_metrics(tmp_path / "alone" / "metrics.jsonl")[-1]
    assert "valid_loss" not in line
    assert f"step 5  to choose on: loss {line['choose_loss']:.4f}" in out


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "A.JSONL.gz", "a.parquet"])
def test_files_of_rows_are_not_read_as_prose(name, call, folder, tmp_path):
    (folder / name).write_text('{"text": "a"}\n' * 9)
    kind = name.lower().split(".")[1]
    fields = {"data.path": folder / name, "data.cache": tmp_path / "cache"}
    if kind == "parquet":  # found in a folder too, beside prose
        fields |= {"data.path": folder}
    out = call("train.py", tmp_path / "run", **fields, code=65)
    refused = f"data.source=text does not read {folder / name}; set data.source={kind}, which"
    assert refused in out.splitlines()[-1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_small_parquet_file_of_one_long_text_takes_little_memory(tmp_path):
    """256 rows of 10 MB, in 2 kB: they were read at once."""
    rows = pyarrow.DictionaryArray.from_arrays(np.zeros(256, np.int32), ["a" * 10_000_000])
    options = dict(compression="zstd", dictionary_pagesize_limit=2**30, store_schema=False)
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), tmp_path / "a.parquet", **options)
    code = (
        "import sys\nfrom posenc_jax.data import sources\n"
        "source, _ = sources.read({'source': 'parquet', 'path': sys.argv[1]}, 8)\n"
        "sizes = [len(document.text) for document in source.documents(0)]\n"
        "(peak,) = (line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line)\n"
        "print(sum(sizes), int(peak) // 1024)"
    )
    size, peak = map(int, python("-c", code, tmp_path / "a.parquet").split())
    assert size == 256 * 10_000_000 and peak < 1_000  # MiB


def lines(count):
    return "".join(np.random.default_rng(0).choice(list("abcdefgh \n"), count))


def test_one_file_is_trained_on_validated_and_evaluated(call, tmp_path):
    (tmp_path / "a.txt").write_text(lines(6_000))
    shutil.copy(tmp_path / "a.txt", tmp_path / "copy.txt")
    fields = {"data.path": f"{tmp_path}/a.txt", "data.cache": tmp_path / "cache", "steps": 5}
    out = call("train.py", tmp_path / "run", **fields)
    assert "1 document held out" in out and "step 5  held out: loss" in out
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none"]
    call("eval_extrapolation.py", tmp_path / "run", *words)
    copy = ["--config.data.source=text", f"--config.data.path={tmp_path}/copy.txt"]
    out = call("eval_extrapolation.py", tmp_path / "run", *words, *copy, code=65)
    assert "documents that the run was trained on: 1 of 1; nothing is left" in out


def test_stretches_of_one_document_are_nowhere_called_documents(call, tmp_path):
    """On the terminal, by compare.py, on the page, in captions, tables and rows; nothing is
    significant, however large the difference."""
    (tmp_path / "a.txt").write_text(lines(6_000))
    fields = {"data.path": f"{tmp_path}/a.txt", "data.cache": tmp_path / "cache", "steps": 5}
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none"]
    words += ["--config.protocols=same_token,nonoverlap,order"]
    said, runs = {}, [tmp_path / "runs" / name for name in ("rope", "alibi")]
    for run in runs:
        rate = 1e-6 if run.name == "alibi" else 0.02
        call("train.py", run, config=run.name, **fields, learning_rate=rate)
        said[run.name] = call("eval_extrapolation.py", run, *words)
        said[f"{run.name}'s captions"] = (run / "plots" / "captions.md").read_text()
        assert "warning: the intervals are over 28 stretches of 1 document, too" in said[run.name]
        for row in rows_of(run):
            counts = row["documents"], row["unit"], row["units"]
            assert counts == ("1", "stretch", "28") and not row["part"].startswith("swapped")
    said["compare"] = script("compare.py", *runs)
    said["report"] = script("report.py", tmp_path / "runs", f"--out={tmp_path}/out")
    said["page"] = (tmp_path / "out" / "index.html").read_text()
    said["its captions"] = (tmp_path / "out" / "captions.md").read_text()
    assert "95%, 28 stretches of 1 document" in said["page"]
    claims = re.compile(r"over documents|\d\*|\*\d|\b(?!10 )\d+ documents")
    for name, text in said.items():
        text = " ".join(text.split())  # whose lines may break anywhere
        assert "28 stretches of 1 document" in text and not claims.search(text), name


@pytest.mark.parametrize("limit", [None, "1.5e3"])
def test_a_data_set_by_name_is_trained_on_and_its_splits_evaluated(
    limit, call, tmp_path, monkeypatch
):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "home"))
    lines = ["---", "configs:", "- config_name: raw", "  data_files:"]
    for number, split in enumerate(("train", "validation", "test")):
        rows = [letters(100 * number + i, 240) for i in range(8)]
        datasets.Dataset.from_dict({"text": rows}).to_parquet(tmp_path / "set" / f"{split}.parquet")
        lines += [f"  - split: {split}", f"    path: {split}.parquet"]
    (tmp_path / "set" / "README.md").write_text("\n".join([*lines, "---", ""]))
    named = {"data.path": tmp_path / "set", "data.source": "hub", "data.name": "raw"}
    fields = {"data.valid_split": "validation", "data.valid_fraction": None, "steps": 5}
    run = tmp_path / "run"
    fields |= {"data.cache": tmp_path / "cache", "data.limit": limit}
    out = call("train.py", run, **named, **fields)
    assert f"{7 if limit else 8} documents held out" in out
    words = ["--config.multiples=1,2", "--config.extensions=none"]
    call("eval_extrapolation.py", run, *words)
    asked = ["--config.data.source=hub", f"--config.data.path={tmp_path}/set"]
    out = call("eval_extrapolation.py", run, *words, *asked, "--config.data.split=validation")
    assert "cells cached" in out
    out = call("eval_extrapolation.py", run, *words, *asked, "--config.data.split=train", code=65)
    assert "nothing is left to evaluate on" in out
    call("eval_extrapolation.py", run, *words, *asked, "--config.data.split=test")
    text = (run / "eval" / "curves.csv").read_text()
    assert ",held-out," in text and ",set," in text
    assert limit is None or not list((tmp_path / "home").rglob("*.arrow"))


@pytest.fixture
def moved(folder, call, tmp_path):
    """A run that stopped, its text and its tokenizer, none where it was; and its fields then."""
    (tmp_path / "old").mkdir()
    shutil.move(folder, tmp_path / "old" / "texts")
    learned = tokenizer.train_bpe(["abcdefgh " * 20], 262)
    learned.save(str(tmp_path / "old" / "bpe.json"))
    fields = {"data.path": f"{tmp_path}/old/texts/*.txt", "data.cache": tmp_path / "cache"}
    fields |= {"data.tokenizer": tmp_path / "old" / "bpe.json"}
    call("train.py", tmp_path / "old" / "run", **fields, stop_at=4, code=75)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "old").rename(tmp_path / "new")
    return tmp_path / "new", fields


def test_a_moved_run_resumes_and_is_evaluated_and_loaded(moved, call):
    place, fields = moved
    run, here = place / "run", {"data.path": f"{place}/texts/*.txt"}
    (place / "bpe.json").unlink()  # the run keeps its own
    out = call("train.py", run, **fields | here)
    assert "resuming at step 4" in out and "done: 12 steps" in out
    *_, encoder = posenc_jax.load_run(run)
    assert encoder.vocab == 262
    words = ["--config.multiples=1,2", "--config.extensions=none"]
    call("eval_extrapolation.py", run, *words)
    (place / "texts").rename(place / "again")
    out = call("eval_extrapolation.py", run, *words, code=65)
    assert f"nothing matches '{place}/texts/*.txt'" in out and "--config.data.path=NEW" in out
    there = {"data.path": f"{place}/again/*.txt"}
    assert "already done" in call("train.py", run, **fields | there)
    out = call("eval_extrapolation.py", run, *words)
    assert "cells cached" in out and "this one is" not in out


def test_an_evaluation_writes_tokens_here_and_reads_those_of_the_run(
    folder, call, tmp_path, monkeypatch
):
    """Nothing is written where the run kept its own, which may be another person's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    theirs, mine, other = (tmp_path / name for name in ("cache", "mine", "other.txt"))
    other.write_text((folder / "00.txt").read_text().upper())
    call("train.py", tmp_path / "run", **{"data.path": f"{folder}/*.txt", "data.cache": theirs})
    words = "eval_extrapolation.py", tmp_path / "run", "--config.multiples=1"
    kept = sorted(theirs.rglob("*"))
    call(*words)
    assert not [*tmp_path.glob("home/posenc-jax/text-*")]
    call(*words, "--config.data.source=text", f"--config.data.path={other}")
    assert [*tmp_path.glob("home/posenc-jax/text-*")] and sorted(theirs.rglob("*")) == kept
    shutil.rmtree(theirs)
    theirs.touch()
    call(*words, f"--config.data.cache={mine}")
    assert [*mine.glob("text-*")]


def test_weights_go_on_with_the_same_tokenizer_by_another_name_alone(moved, call, tmp_path):
    place, fields = moved
    fields |= {"data.path": f"{place}/texts/*.txt", "init_from": place / "run", "steps": 2}
    fields["data.tokenizer"] = place / "bpe.json"
    assert "done: 2 steps" in call("train.py", tmp_path / "finer", **fields)
    other = tokenizer.train_bpe(["hgfedcba " * 20], 262)
    other.save(str(place / "bpe.json"))
    out = call("train.py", tmp_path / "another", **fields, code=76)
    assert "was not trained with the tokenizer" in out
    assert not (tmp_path / "another" / "config.json").exists()  # the mistake claims no folder


def test_too_little_text_claims_no_folder(folder, call, tmp_path):
    """The same command with more text trains there."""
    fields = {"data.path": f"{folder}/*.txt", "data.cache": tmp_path / "cache"}
    out = call("train.py", tmp_path / "run", **fields, train_length=2**20, code=65)
    assert "too few for one row of 1048576" in out
    assert not (tmp_path / "run" / "config.json").exists()
    assert "done: 12 steps" in call("train.py", tmp_path / "run", **fields)


def test_another_text_or_tokenizer_under_a_run_is_refused(moved, call):
    place, fields = moved
    run, here = place / "run", {"data.path": f"{place}/texts/*.txt"}
    (place / "texts" / "00.txt").write_text("another")
    out = call("train.py", run, **fields | here, code=65)
    assert "the data changed since the checkpoint" in out
    own = run / "tokenizer.json"
    own.write_text(tokenizer.train_bpe(["abcdefgh " * 20], 259).to_str())
    with pytest.raises(DataError, match="is not the tokenizer that the run was trained with"):
        posenc_jax.load_run(run)
