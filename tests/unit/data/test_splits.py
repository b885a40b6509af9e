"""Splits of the documents into training, validation and selection, and their digests."""

import gzip
import json
import math

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from prepared_texts import letters, texts_of

from posenc_jax.data import corpora, sources, splits
from posenc_jax.data.hashes import Hashes
from posenc_jax.evaluation import windows
from posenc_jax.runtime.errors import DataError


class TestDigests:
    def test_equal_texts_have_equal_digests_in_any_source(self, prepare, tmp_path):
        lines = [f"  {letters(i)}\r\nend {i}\n" for i in range(4)]
        (tmp_path / "a").mkdir()
        for i, line in enumerate(lines):  # as files, without surrounding whitespace
            (tmp_path / "a" / f"{i}.txt").write_bytes(line.strip().replace("\r\n", "\n").encode())
        with gzip.open(tmp_path / "rows.jsonl.gz", "wt", newline="") as stream:
            for line in lines:
                stream.write(json.dumps({"text": line}) + "\n")
        files, rows = (
            prepare(source=source, path=f"{tmp_path}/{path}", valid_fraction=0.0).train
            for source, path in (("text", "a"), ("jsonl", "rows.jsonl.gz"))
        )
        assert files.digests.dtype == np.uint64 and len(set(files.digests.tolist())) == 4
        np.testing.assert_array_equal(files.digests, rows.digests)
        assert files.digests.tolist() == [sources.digest(line.encode()) for line in lines]

    def test_digests_are_stable(self):
        """A digest is the start of the sha256, which others can compute."""
        assert sources.digest(b"abc") == 0xBA7816BF8F01CFEA == sources.digest(b"\r\nabc \n")
        assert sources.digest(b"a b") != sources.digest(b"ab")

    def test_documents_seen_in_another_text_are_excluded(self, prepare, texts, tmp_path):
        trained = prepare(**texts).train
        rows = [json.dumps({"text": letters(i) + "\n"}) + "\n" for i in range(25, 40)]
        (tmp_path / "rows.jsonl").write_text("".join(rows))
        other = prepare(source="jsonl", path=f"{tmp_path}/rows.jsonl", valid_fraction=0.0).train
        keep = other.without(trained.digests)
        seen = {text.strip() for text in texts_of(trained)}
        assert keep.tolist() == [text.strip() not in seen for text in texts_of(other)]
        assert keep.any() and not keep.all()
        assert other.without(np.zeros(0, np.uint64)).all()


class TestPackages:
    """A package predicts its files, so packages are held out whole."""

    @pytest.fixture
    def stdlib(self, tmp_path, monkeypatch):
        """A small library of modules and two-file packages."""
        names = [f"module{i}" for i in range(12)] + [f"package{i}" for i in range(12)]
        for i, name in enumerate(names):
            inside = ["__init__", "inner/deep"] if name.startswith("package") else [""]
            for j, file in enumerate(inside):
                path = tmp_path / "lib" / (f"{name}/{file}.py" if file else f"{name}.py")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"# {name} {letters(2 * i + j)}")
        monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path / "lib")})
        monkeypatch.setattr("sys.stdlib_module_names", frozenset(names))
        return names

    def parts(self, prepare, **fields):
        corpus = prepare(source="stdlib", valid_fraction=0.3, choose_fraction=0.3, **fields)
        splits = (corpus.train, corpus.valid, corpus.choose)
        return [{text.split()[1] for text in texts_of(split)} for split in splits]

    def test_all_files_of_a_package_are_in_one_split(self, prepare, stdlib):
        by_package = self.parts(prepare, hold_out="package")
        assert sum(map(len, by_package)) == len(stdlib) and all(by_package)
        by_file = self.parts(prepare, hold_out="document")
        assert sum(map(len, by_file)) > len(stdlib)
        assert by_file == self.parts(prepare)

    def test_files_of_a_package_share_a_group(self, prepare, stdlib, tmp_path):
        fields = {"valid_fraction": 0.3, "choose_fraction": 0.3}
        corpus = prepare(source="stdlib", hold_out="package", **fields)
        for split in (corpus.train, corpus.valid, corpus.choose, corpus.whole()):
            names = [text.split()[1] for text in texts_of(split)]
            group_of = dict(zip(names, split.groups, strict=True))
            assert [group_of[name] for name in names] == list(split.groups)
            assert len(set(group_of.values())) == len(group_of)
        assert len(corpus.whole().groups) > len(group_of) == len(stdlib)
        assert prepare(source="stdlib", **fields).valid.groups is None
        damaged = corpus.folder / "train.groups.npy"
        np.save(damaged, corpus.train.groups[1:])
        for content in (damaged.read_bytes(), b"", b"no array"):
            damaged.write_bytes(content)
            with pytest.raises(DataError, match="has changed since it was written"):
                corpora.load(corpus.folder, corpus.card, Hashes(tmp_path))
        for split in ("train", "valid", "choose"):  # the group files are optional
            (corpus.folder / f"{split}.groups.npy").unlink()
            again = corpora.load(corpus.folder, corpus.card, Hashes(tmp_path))
            assert again.whole().groups is None
        assert again.fingerprint == corpus.fingerprint and again.valid.groups is None

    def test_a_package_keeps_its_split_when_its_text_changes(self, prepare, stdlib, tmp_path):
        before = self.parts(prepare, hold_out="package")
        for path in (tmp_path / "lib").rglob("*.py"):
            path.write_text(path.read_text() + " and more")
        assert self.parts(prepare, hold_out="package") == before


def golden(folder):
    """Each kind of file, by its fields of `data`: line ends, blank lines and dates stay text."""
    texts = [letters(i, 60) + f"\r\n = {i} = \n\u6771 {i}" for i in range(12)]
    texts += ["2020-01-01", "2020-01-01T10:00:00Z", "12", "  x \r\n y\r"]
    rows = [json.dumps({"text": text, "n": i}).encode() + b"\n" for i, text in enumerate(texts)]
    plain = [("\n = A = \n".join(texts[i::3])).encode() for i in range(3)]
    for kind, parts in (("txt", plain), ("jsonl", [b"\n".join(rows[i::3]) for i in range(3)])):
        (folder / kind).mkdir()
        (folder / kind / f"0.{kind}").write_bytes(parts[0])
        (folder / kind / f"1.{kind}.gz").write_bytes(gzip.compress(parts[1], mtime=0))
        with pyarrow.OSFile(str(folder / kind / f"2.{kind}.zst"), "wb") as file:
            with pyarrow.CompressedOutputStream(file, "zstd") as stream:
                stream.write(parts[2])
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / "a.parquet")
    return {
        **{
            f"{name}{end}": {"source": source, "path": f"{folder}/{name}/*{end}".removesuffix("/*")}
            for source, name in (("text", "txt"), ("jsonl", "jsonl"))
            for end in ("", ".gz", ".zst")
        },
        "begins": {"source": "text", "path": f"{folder}/txt", "begins": " = [^=]"},
        "parquet": {"source": "parquet", "path": f"{folder}/*.parquet"},
        "choose": {"source": "parquet", "path": f"{folder}/*.parquet", "choose_fraction": 0.3},
    }


GOLDEN = {
    "txt": "3bccd49d7ba8",
    "txt.gz": "fcb5c8301485",
    "txt.zst": "ba80432e3455",
    "begins": "f7f7957bc287",
    "jsonl": "e3701837d7c4",
    "jsonl.gz": "37131a86b9d7",
    "jsonl.zst": "1cbb549a52d3",
    "parquet": "0e1f925959c6",
    "choose": "8ec7fc66fba4",
}


class TestFingerprint:
    def test_the_same_text_keeps_its_fingerprint_and_its_cache(self, prepare, tmp_path):
        read = {name: prepare(**fields) for name, fields in golden(tmp_path).items()}
        assert {name: corpus.fingerprint[:12] for name, corpus in read.items()} == GOLDEN
        plain = prepare(source="text", path=f"{tmp_path}/txt/*.txt")
        assert plain.folder.name == "text-2b7540a87d32af56"  # of no option that it leaves alone

    def test_the_fingerprint_depends_on_the_text_and_not_its_path(self, prepare, texts, tmp_path):
        first = prepare(**texts)
        (tmp_path / "texts").rename(tmp_path / "elsewhere")
        moved = prepare(**texts | {"path": f"{tmp_path}/elsewhere/*.txt"})
        assert moved.fingerprint == first.fingerprint
        fewer = prepare(**texts | {"path": f"{tmp_path}/elsewhere/0*.txt"})
        assert moved.fingerprint != fewer.fingerprint

    def test_an_edited_card_is_refused(self, prepare, texts):
        path = prepare(**texts).folder / "corpus.json"
        card = json.loads(path.read_text())
        lossy = {"documents": 9, "changed": 9, "characters": 9, "examples": ["T"]}
        for change in ({"vocab": 300}, {"dtype": "|i1"}, {"lossy": lossy}, {"lossy": 5}):
            path.write_text(json.dumps(card | change))
            with pytest.raises(DataError, match="has changed since it was written; delete it"):
                prepare(**texts)

    @pytest.mark.parametrize("name", ["train.tokens", "valid.digests.npy", "choose.tokens"])
    def test_damage_to_any_file_is_found(self, name, prepare, texts):
        path = prepare(**texts, choose_fraction=0.3).folder / name
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
            path.write_bytes(damaged)
            with pytest.raises(DataError, match="has changed since it was written; delete it"):
                prepare(**texts, choose_fraction=0.3)
        for card in (b"", b"null", b"5", b"{}"):  # as after a power failure: rebuilt
            (path.parent / "corpus.json").write_bytes(card)
            prepare(**texts, choose_fraction=0.3)
            assert path.read_bytes() == whole
            path.write_bytes(damaged)


def test_a_third_split_keeps_the_held_out_documents(prepare, texts):
    two = prepare(**texts)
    assert len(two.choose.tokens) == 0 == len(two.choose.digests)
    for fraction in (0.2, 0.5):
        three = prepare(**texts, choose_fraction=fraction)
        assert texts_of(three.valid) == texts_of(two.valid) and texts_of(three.valid)
        splits = [texts_of(split) for split in (three.train, three.valid, three.choose)]
        assert sorted(sum(splits, [])) == sorted(letters(i) for i in range(30))
        assert splits[2] == [t for t in texts_of(two.train) if t not in set(splits[0])]
        assert splits[0] and splits[2]


class TestFewDocuments:
    @pytest.fixture
    def written(self, prepare, tmp_path):
        """Prepare texts of a folder, one a file."""

        def make(name, texts, **fields):
            (tmp_path / name).mkdir(exist_ok=True)
            for i, text in enumerate(texts):
                (tmp_path / name / f"{i:02d}.txt").write_text(text)
            return prepare(source="text", path=f"{tmp_path}/{name}/*.txt", **fields)

        return make

    @pytest.mark.parametrize("count", [5, 10, 13, 30, 70])
    def test_below_100_documents_the_fraction_of_lowest_hash_is_held_out(self, count, written):
        """Rounded up, in any file order; by hashes alone 18% of 30 held out one or none."""
        for draw in range(4):
            texts = [letters(100 * count + 17 * draw + i, 50) for i in range(count)]
            corpus, reordered = (written(f"{draw}{order}", texts[::order]) for order in (1, -1))
            held = texts_of(corpus.valid)
            assert sorted(held) == sorted(texts_of(reordered.valid))
            lowest = sorted(texts, key=lambda text: splits.hash_of(text.encode())[:8])
            assert sorted(held) == sorted(lowest[: -(-count // 10)])
            assert sorted(texts_of(corpus.train) + held) == sorted(texts)

    @pytest.mark.parametrize("fraction", [0.1, 0.3, 0.45])
    def test_few_documents_leave_some_to_train_on(self, fraction):
        for count in [*range(2, 12), 99, 100]:
            hashes = sorted(splits.hash_of(f"{count} {i}".encode()) for i in range(count))
            given = [splits.split_of(own, fraction, fraction) for own in hashes]
            moved = splits.moved(hashes, fraction, fraction)
            assert all(split != given[hashes.index(own)] for own, split in moved.items())
            found = [moved.get(own, split) for own, split in zip(hashes, given, strict=True)]
            valid = min(math.ceil(fraction * count), count - 1)
            choose = min(math.ceil(fraction * count), count - valid - 1)
            few = ["valid"] * valid + ["train"] * (count - valid - choose) + ["choose"] * choose
            assert found == (few if count < 100 else given)

    TEXT = "".join(f"line {i}, {letters(i, 30)}\n" for i in range(200))

    def test_few_documents_beside_a_stated_split_fill_a_third_one(self, written, tmp_path):
        text = self.TEXT + "the end"
        (tmp_path / "valid.txt").write_text(letters(99, 50))
        stated = {"valid_path": f"{tmp_path}/valid.txt", "choose_fraction": 0.2}
        corpus = written("train", [text], **stated)
        (train,), (choose,), (valid,) = map(texts_of, (corpus.train, corpus.choose, corpus.valid))
        assert train + choose == text and valid == letters(99, 50)
        assert len(choose) / len(text) == pytest.approx(0.2, abs=0.01)

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_the_end_of_each_of_very_few_documents_is_held_out_at_a_line_end(self, count, written):
        """Each counts as trained on in whole and in its first part, and its held-out part not."""
        texts = [self.TEXT.replace("line", f"line {i} of") for i in range(count)]
        corpus = written("few", texts, choose_fraction=0.2)
        splits = corpus.train, corpus.choose, corpus.valid
        parts = [texts_of(split) for split in splits]
        assert list(map("".join, zip(*parts, strict=True))) == texts
        assert all(text.endswith("\n") for part in parts for text in part)
        shares = np.array([len(split.tokens) for split in splits]) / sum(map(len, texts))
        np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.01)
        trained = corpus.digests
        assert not corpus.train.without(trained).any() and corpus.valid.without(trained).all()
        whole = written("few", texts, cut_one=False, valid_fraction=0.0)
        assert not whole.train.without(trained).any()

    @pytest.mark.parametrize(
        ("text", "train"),
        [("東" * 1002, "東" * 901), ("A title\n" + "x" * 1000, "A title\n" + "x" * 899)],
    )
    def test_a_long_line_is_cut_between_characters(self, text, train, written):
        corpus = written("one", [text])
        assert texts_of(corpus.train) + texts_of(corpus.valid) == [train, text[len(train) :]]

    def test_one_document_stays_whole_on_request_or_beside_another(self, written):
        corpus = written("one", [self.TEXT], cut_one=False, valid_fraction=1e-9)
        assert texts_of(corpus.train) == [self.TEXT]
        corpus = written("one", [self.TEXT, "another"], valid_fraction=1e-9)
        assert texts_of(corpus.train) == [self.TEXT, "another"]

    def test_one_document_is_evaluated_in_stretches(self, written):
        held = written("one", [self.TEXT], valid_fraction=0.3).valid
        split = windows.in_stretches(held, 64)
        text = windows.choose(split, 64, wanted=1)
        assert len(text.documents) == len(held.tokens) // 65 and len(text.documents) > 20
        assert split.starts[-1] == len(held.tokens)
        few = windows.choose(windows.in_stretches(held, 16), 16, wanted=10**6)
        assert len(few.documents) <= 50 < len(held.tokens) // 17 - 2 <= len(few.starts)
        with pytest.raises(DataError, match="1 of 1 documents have the 1501 tokens"):
            windows.choose(windows.in_stretches(held, 1500), 1500)
