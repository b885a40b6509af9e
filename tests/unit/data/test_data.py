"""From text to batches: reading, tokenizing, splitting, reproducibility and large seeds."""

import gzip
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from prepared_texts import letters, texts_of

from posenc_jax.data import corpora, hashes, sources, tasks
from posenc_jax.data import prepare as preparing
from posenc_jax.data.batches import Batches
from posenc_jax.runs import parameters
from posenc_jax.runtime.errors import DataError, Stop

FAR = 2**32  # jax.random.key distinguishes this many values
SEEDS = (5, 5 + FAR, 5 + 2 * FAR, 2**63 - 1)


def test_documents_stay_whole_and_are_split_by_hash(prepare, texts):
    corpus = prepare(**texts)
    held_out, trained = texts_of(corpus.valid), texts_of(corpus.train)
    assert sorted(held_out + trained) == sorted(letters(i) for i in range(30))
    by_hash = sorted(held_out + trained, key=lambda t: hashlib.sha256(t.encode()).digest()[:8])
    assert [text in trained for text in by_hash] == [False] * 9 + [True] * 21
    for split in (corpus.valid, corpus.train):
        assert split.digests.tolist() == [sources.digest(t.encode()) for t in texts_of(split)]


def test_the_card_records_the_source_files(prepare, texts):
    card = prepare(**texts).card
    assert card["counts"] == {"documents": 30, "duplicates": 0, "empty": 0}
    assert card["splits"]["train"]["bytes_per_token"] == 1.0
    total = sum(card["splits"][name]["bytes"] for name in ("train", "valid"))
    assert total == 30 * 400 == sum(entry["size"] for entry in card["sources"])
    for entry in card["sources"]:
        assert entry["sha256"] == hashlib.sha256(Path(entry["path"]).read_bytes()).hexdigest()


def test_a_corpus_is_rebuilt_only_when_a_file_changes(prepare, texts, tmp_path):
    first = prepare(**texts)
    assert prepare(**texts).card["built"] == first.card["built"]
    (tmp_path / "texts" / "00.txt").write_text("something else")
    changed = prepare(**texts)
    assert changed.folder != first.folder and changed.fingerprint != first.fingerprint
    remains = corpora.load(first.folder, first.card, hashes.Hashes(tmp_path))
    assert remains.fingerprint == first.fingerprint


def test_unchanged_files_are_not_hashed_again(prepare, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(hashes, "SETTLED_SECONDS", -60)  # remember files at once
    read, real = [], hashes.hash_of_file
    monkeypatch.setattr(hashes, "hash_of_file", lambda path: read.append(path.name) or real(path))
    first = prepare(**texts)
    assert read.count("03.txt") == 1
    read.clear()
    assert prepare(**texts).fingerprint == first.fingerprint and read == []
    changed = tmp_path / "texts" / "03.txt"
    before = changed.stat()
    changed.write_text(letters(3)[::-1])
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))  # size and mtime look unchanged
    assert prepare(**texts).fingerprint != first.fingerprint
    assert [name for name in read if name.endswith(".txt")] == ["03.txt"]


def test_the_hash_of_a_fresh_file_is_not_remembered(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with hashes.Hashes(tmp_path) as known:
        known.of(tmp_path / "a.txt")
    assert not (tmp_path / hashes.HASHES_FILE).exists()


@pytest.mark.parametrize(
    "content",
    [b"5", b"null", b"[]", b"{", b"\xff", b"[" * 100_000]
    + [b'{"/a.txt": %s}' % entry for entry in (b"5", b"null", b"[]", b"{}", b"[1, null]")],
)
def test_damaged_hashes_are_hashed_again_with_a_warning(content, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hashes, "SETTLED_SECONDS", -60)  # remember files at once
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / hashes.HASHES_FILE).write_bytes(content)
    for warning in ("hashes.json is damaged: files are hashed again", ""):
        with hashes.Hashes(tmp_path) as known:
            assert known.of(tmp_path / "a.txt") == hashlib.sha256(b"a").hexdigest()
        err = capsys.readouterr().err
        assert warning in err and bool(warning) == bool(err)


@pytest.mark.parametrize("packed", [False, True])
def test_progress_reaches_its_total(packed, tmp_path, prepare, monkeypatch):
    path = tmp_path / ("rows.jsonl.gz" if packed else "rows.jsonl")
    rows = "".join(json.dumps({"text": letters(i % 9)}) + "\n" for i in range(40)).encode()
    path.write_bytes(gzip.compress(rows) if packed else rows)
    bars = []

    class Bar(preparing.tqdm):
        def __init__(self, **options):
            super().__init__(**options | {"disable": False, "file": io.StringIO()})
            bars.append(self)

    monkeypatch.setattr(preparing, "tqdm", Bar)
    prepare(source="jsonl", path=str(path), valid_fraction=0.0)
    (bar,) = bars
    assert bar.total == path.stat().st_size == pytest.approx(bar.n)


def test_leftovers_of_a_killed_build_do_no_harm(prepare, texts):
    folder = prepare(**texts).folder
    shutil.rmtree(folder)
    (folder.parent / f".{folder.name}.building").mkdir()
    assert prepare(**texts).folder == folder
    assert not list(folder.parent.glob(".*.building"))


def test_empty_documents_and_byte_equal_ones_are_dropped(prepare, texts, tmp_path):
    for name, text in (("copy", letters(3)), ("longer", letters(3) + "\n"), ("empty", "")):
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    assert prepare(**texts).card["counts"] == {"documents": 31, "duplicates": 1, "empty": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n{"text": \n', "rows.jsonl, line 2: not JSON"),
        (b'{"text": "a"}\n{"texts": "b"}\n', "line 2: no field 'text'.*has: texts"),
        (b'{"text": 3}\n', "line 1: no text in field 'text'.*got int"),
        (b"[1]\n", "line 1: no field 'text'.*has: list"),
        (b"", "no text to train on"),
        (b'{"text": "\\ud800"}\n', "line 1: a lone surrogate, '.ud800', is not text"),
        (b'{"text": "\xff"}\n', "line 1: not JSON"),
    ],
)
def test_a_bad_line_is_named(content, message, tmp_path, prepare):
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        prepare(source="jsonl", path=str(tmp_path / "rows.jsonl"))
    assert not [p for p in (tmp_path / "cache").iterdir() if p.is_dir()]


def test_an_unwritable_cache_names_the_field(prepare, texts, tmp_path):
    (tmp_path / "cache").write_text("a file is there")
    with pytest.raises(Stop, match="set data.cache to a writable folder") as caught:
        prepare(**texts)
    assert caught.value.code == 74


def test_the_cache_is_in_the_users_folder_of_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert corpora.cache_folder("") == tmp_path / "posenc-jax"


def test_the_standard_library_is_read_without_its_tests(prepare):
    corpus = prepare()
    names = [entry["path"] for entry in corpus.card["sources"]]
    assert any(name.endswith("/argparse.py") for name in names)
    assert any("/asyncio/" in name for name in names)
    for word in ("/test/", "/tests/", "/idlelib/", "/encodings/", "/pydoc_data/"):
        assert not any(word in name for name in names)
    assert corpus.card["splits"]["train"]["tokens"] > 4_000_000
    assert sum(corpus.valid.lengths > 1024) >= 10


class TestBatches:
    def make(self, tokens=1_000, documents=4, **options):
        split = SimpleNamespace(
            tokens=np.arange(tokens),
            starts=np.linspace(0, tokens, documents + 1).astype(int),
            bytes_of=None,
        )
        defaults = dict(length=16, batch_size=4, seed=0, within_documents=False)
        return Batches(split, **(defaults | options))

    def test_a_step_is_a_pure_function_of_seed_and_step(self):
        first, second = self.make(), self.make()
        for step in (0, 7, 40, 3):
            jax.tree.map(np.testing.assert_array_equal, first.batch(step), second.batch(step))
        assert np.any(self.make(seed=1).batch(0).inputs != first.batch(0).inputs)

    def test_targets_are_the_next_tokens(self):
        batch = self.make().batch(5)
        np.testing.assert_array_equal(batch.inputs + 1, batch.targets)
        assert batch.inputs.shape == (4, 16) and batch.inputs.dtype == np.int32

    def test_a_prefix_replaces_the_first_input_and_no_target(self):
        plain, prefixed = self.make().batch(5), self.make(prefix=7).batch(5)
        assert np.all(prefixed.inputs[:, 0] == 7)
        np.testing.assert_array_equal(prefixed.inputs[:, 1:], plain.inputs[:, 1:])
        np.testing.assert_array_equal(prefixed.targets, plain.targets)

    def test_an_epoch_reads_every_row_once_and_the_next_shifts_the_cuts(self):
        batches = self.make(batch_size=1)
        first = [int(batches.batch(step).inputs[0, 0]) for step in range(3 * batches.rows)]
        epochs = np.split(np.array(first), 3)
        for starts in epochs:
            assert len(set(starts // 16)) == batches.rows and len(set(starts % 16)) == 1
        assert len({starts[0] % 16 for starts in epochs}) > 1
        assert np.any(epochs[0] != epochs[1])

    def test_a_process_reads_only_its_rows(self):
        whole, half = self.make().batch(3), self.make().batch(3, slice(2, 4))
        np.testing.assert_array_equal(half.inputs, whole.inputs[2:4])

    def test_targets_of_another_document_have_zero_weight_within_documents(self):
        batches = self.make(within_documents=True)
        seen = 0
        for step in range(20):
            batch = batches.batch(step)
            inputs, targets = batch.inputs // 250, batch.targets // 250  # their documents
            np.testing.assert_array_equal(batch.weights == 0, inputs != targets)
            np.testing.assert_array_equal(batch.segments, inputs - inputs[:, :1])
            seen += (inputs != targets).sum()
        assert seen > 0
        assert np.all(self.make().batch(0).weights == 1)

    def test_too_few_tokens_are_refused(self):
        with pytest.raises(DataError, match="20 tokens: too few for one row of 16"):
            self.make(tokens=20)

    @pytest.mark.sampled
    def test_large_seeds_give_different_row_orders(self):
        rows = {
            self.make(documents=1, batch_size=8, seed=s).batch(0).inputs.tobytes() for s in SEEDS
        }
        assert len(rows) == 4

    def test_held_out_rows_cover_the_split(self):
        rows = self.make().held_out(5)
        assert rows.inputs[0, 0] == 0 and rows.inputs[-1, 0] > 900 and len(rows.inputs) == 5


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [0, 1, 2**31, FAR - 1])
def test_seeds_below_2_to_32_keep_their_key(seed):
    key = jax.random.key_data(parameters.key_of(seed))
    np.testing.assert_array_equal(key, jax.random.key_data(jax.random.key(seed)))
    assert parameters.key_of(seed) != parameters.key_of(seed + FAR)


@pytest.mark.sampled
def test_large_seeds_give_different_synthetic_documents():
    task = tasks.make("copy", 0, document_length=100)
    texts = [[drawn.text.tobytes() for drawn in task.draw("any", 4, seed)] for seed in SEEDS]
    assert len(set(sum(texts, []))) == 16
    digest = hashlib.sha256(b"".join(texts[0])).hexdigest()
    assert digest.startswith("46179018fc2118ad")  # unchanged since before larger seeds


@pytest.mark.parametrize("name", ["copy", "induction"])
def test_the_answers_of_a_short_text_follow_from_what_came_before(name):
    task = tasks.make(name, 0, document_length=1_500)
    for drawn in task.draw("any", 3, 1):
        text, where = drawn.text.tobytes(), np.flatnonzero(drawn.answers)
        assert len(text) == len(drawn.answers) == 1_500 and len(where)
        if name == "copy":
            assert all(text[i] == text[i - 33] for i in where)
        else:
            for i in where[where < 256]:
                earlier = text[: i - 1 : 2].index(text[i - 1 : i])
                assert text[2 * earlier + 1] == text[i]

    def texts(seed):
        return [drawn.text.tobytes() for drawn in task.draw("any", 3, seed)]

    assert texts(1) == texts(1) != texts(2)
