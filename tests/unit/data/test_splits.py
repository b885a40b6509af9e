"""Splits of the documents into training, validation and selection, and their digests."""

import gzip
import json
import math

import numpy as np
import pytest
import tokenizers
from configured import origin_of

from configs import base
from posenc_jax.data import corpora, sources, splits
from posenc_jax.runtime.errors import DataError


def words(seed, count=400):
    return "".join(np.random.default_rng(seed).choice(list("abcdefgh "), count))


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(30):
        (folder / f"{i:02d}.txt").write_text(words(i))
    return folder


@pytest.fixture
def prepare(tmp_path):
    def make(path, source="text", **fields):
        data = base.get_config().data
        data.update(source=source, path=str(path), cache=str(tmp_path / "cache"), **fields)
        return corpora.prepare(origin_of(data), 0, quiet=True)

    return make


def texts_of(split):
    pairs = zip(split.starts, split.starts[1:], strict=False)
    return [bytes(split.tokens[start:end]).decode() for start, end in pairs]


class TestDigests:
    def test_equal_texts_have_equal_digests_in_any_source(self, prepare, tmp_path):
        lines = [f"  {words(i)}\r\nend {i}\n" for i in range(4)]
        (tmp_path / "a").mkdir()
        for i, line in enumerate(lines):  # as files, without surrounding whitespace
            (tmp_path / "a" / f"{i}.txt").write_bytes(line.strip().replace("\r\n", "\n").encode())
        with gzip.open(tmp_path / "rows.jsonl.gz", "wt", newline="") as stream:
            for line in lines:
                stream.write(json.dumps({"text": line}) + "\n")
        files = prepare(tmp_path / "a" / "*.txt", valid_fraction=0.0).train
        rows = prepare(tmp_path / "rows.jsonl.gz", "jsonl", field="text", valid_fraction=0.0).train
        assert files.digests.dtype == np.uint64 and len(set(files.digests.tolist())) == 4
        np.testing.assert_array_equal(files.digests, rows.digests)
        assert files.digests.tolist() == [sources.digest(line.encode()) for line in lines]

    def test_digests_are_stable(self):
        """A digest is the start of the sha256, which others can compute."""
        assert sources.digest(b"abc") == 0xBA7816BF8F01CFEA == sources.digest(b"\r\nabc \n")
        assert sources.digest(b"a b") != sources.digest(b"ab")

    def test_digests_follow_the_order_of_documents(self, prepare, folder):
        corpus = prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=0.3)
        for split in (corpus.train, corpus.valid, corpus.choose):
            expected = [sources.digest(text.encode()) for text in texts_of(split)]
            assert split.digests.tolist() == expected and expected

    def test_documents_seen_in_another_text_are_excluded(self, prepare, folder, tmp_path):
        trained = prepare(folder / "*.txt", valid_fraction=0.3).train
        (tmp_path / "rows.jsonl").write_text(
            "".join(json.dumps({"text": words(i) + "\n"}) + "\n" for i in range(25, 40))
        )
        other = prepare(tmp_path / "rows.jsonl", "jsonl", field="text", valid_fraction=0.0).train
        keep = other.without(trained.digests)
        seen = {text.strip() for text in texts_of(trained)}
        assert keep.tolist() == [text.strip() not in seen for text in texts_of(other)]
        assert keep.any() and not keep.all()
        assert other.without(np.zeros(0, np.uint64)).all()

    def test_only_byte_equal_texts_are_duplicates(self, prepare, tmp_path):
        (tmp_path / "a.txt").write_text(words(0))
        (tmp_path / "b.txt").write_text(words(0) + "\n")
        (tmp_path / "c.txt").write_text(words(0))
        corpus = prepare(tmp_path / "*.txt", valid_fraction=0.0)
        assert corpus.card["counts"] == {"documents": 2, "duplicates": 1, "empty": 0}


class TestPackages:
    """A package predicts its files, so packages are held out whole."""

    @pytest.fixture
    def stdlib(self, tmp_path, monkeypatch):
        """A small library of modules and two-file packages."""
        names = [f"module{i}" for i in range(12)] + [f"package{i}" for i in range(12)]
        for i, name in enumerate(names):
            inside = ["__init__", "inner/deep"] if name.startswith("package") else [""]
            for j, file in enumerate(inside):
                path = (
                    tmp_path / "lib" / name / f"{file}.py" if file else tmp_path / f"lib/{name}.py"
                )
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"# {name} {words(2 * i + j)}")
        monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path / "lib")})
        monkeypatch.setattr("sys.stdlib_module_names", frozenset(names))
        return names

    def parts(self, prepare, **fields):
        corpus = prepare("", "stdlib", valid_fraction=0.3, choose_fraction=0.3, **fields)
        return [
            {text.split()[1] for text in texts_of(split)}
            for split in (corpus.train, corpus.valid, corpus.choose)
        ]

    def test_all_files_of_a_package_are_in_one_split(self, prepare, stdlib):
        by_package = self.parts(prepare, hold_out="package")
        assert sum(map(len, by_package)) == len(stdlib) and all(by_package)
        by_file = self.parts(prepare, hold_out="document")
        assert sum(map(len, by_file)) > len(stdlib)
        assert by_file == self.parts(prepare)

    def test_files_of_a_package_share_a_group(self, prepare, stdlib):
        fields = {"valid_fraction": 0.3, "choose_fraction": 0.3}
        corpus = prepare("", "stdlib", hold_out="package", **fields)
        for split in (corpus.train, corpus.valid, corpus.choose, corpus.whole()):
            group_of = {}
            for text, group in zip(texts_of(split), split.groups, strict=True):
                assert group_of.setdefault(text.split()[1], group) == group
            assert len(set(group_of.values())) == len(group_of)
        assert len(corpus.whole().groups) > len(group_of) == len(stdlib)
        assert prepare("", "stdlib", **fields).valid.groups is None
        for split in ("train", "valid", "choose"):  # the group files are optional
            (corpus.folder / f"{split}.groups.npy").unlink()
        again = corpora.load(corpus.folder)
        assert again.fingerprint == corpus.fingerprint and again.valid.groups is None

    def test_a_package_keeps_its_split_when_its_text_changes(self, prepare, stdlib, tmp_path):
        before = self.parts(prepare, hold_out="package")
        for path in (tmp_path / "lib").rglob("*.py"):
            path.write_text(path.read_text() + " and more")
        assert self.parts(prepare, hold_out="package") == before

    def test_holding_out_documents_keeps_the_cache_of_earlier_runs(self, prepare, stdlib):
        assert "hold_out" not in prepare("", "stdlib").card["identity"]
        assert prepare("", "stdlib", hold_out="package").card["identity"]["hold_out"] == "package"


class TestFingerprint:
    @pytest.fixture
    def letters(self, tmp_path):
        """A tokenizer with one token per letter."""
        vocab = {"?": 0, " ": 1} | {letter: 2 + i for i, letter in enumerate("abcdefgh")}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="?"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        tokenizer.decoder = tokenizers.decoders.Fuse()
        tokenizer.save(str(tmp_path / "letters.json"))
        return str(tmp_path / "letters.json")

    def test_the_fingerprint_depends_on_the_text_and_not_its_path(self, prepare, folder, tmp_path):
        first = prepare(folder / "*.txt")
        moved = prepare(folder.rename(tmp_path / "elsewhere") / "*.txt")
        assert moved.fingerprint == first.fingerprint
        assert moved.fingerprint != prepare(tmp_path / "elsewhere" / "0*.txt").fingerprint

    @pytest.mark.parametrize(
        "change",
        [
            {"vocab": 300},
            {"dtype": "|i1"},
            {"dtype": "nonsense"},
            {"lossy": {"documents": 9, "changed": 9, "characters": 9, "examples": ["T"]}},
        ],
        ids=str,
    )
    def test_an_edited_card_is_refused(self, change, prepare, folder):
        corpus = prepare(folder / "*.txt")
        path = corpus.folder / "corpus.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(DataError, match="has changed since it was written; delete it"):
            prepare(folder / "*.txt")

    @pytest.mark.parametrize("name", ["valid.digests.npy", "choose.tokens"])
    def test_damage_to_any_file_is_found(self, name, prepare, folder):
        corpus = prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=0.3)
        whole = (corpus.folder / name).read_bytes()
        (corpus.folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DataError, match="has changed since it was written; delete it"):
            prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=0.3)


class TestChoosing:
    def test_a_third_split_keeps_the_held_out_documents(self, prepare, folder):
        two = prepare(folder / "*.txt", valid_fraction=0.3)
        assert len(two.choose.tokens) == 0 == len(two.choose.digests)
        for fraction in (0.2, 0.5):
            three = prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=fraction)
            assert texts_of(three.valid) == texts_of(two.valid) and texts_of(three.valid)
            splits = [texts_of(split) for split in (three.train, three.valid, three.choose)]
            assert sorted(sum(splits, [])) == sorted(words(i) for i in range(30))
            assert splits[2] == [t for t in texts_of(two.train) if t not in set(splits[0])]
            assert splits[0] and splits[2]

    def test_a_third_split_changes_the_cache_and_none_keeps_it(self, prepare, folder):
        corpus = prepare(folder / "*.txt")
        assert "choose_fraction" not in corpus.card["identity"]
        other = prepare(folder / "*.txt", choose_fraction=0.3)
        assert other.card["identity"]["choose_fraction"] == 0.3
        assert other.folder != corpus.folder


class TestFewDocuments:
    @pytest.mark.parametrize("count", [5, 6, 8, 10, 13])
    def test_few_documents_still_fill_the_held_out_split(self, count, prepare, tmp_path):
        """The lowest hashes are held out if none is below the fraction, in any file order."""
        for draw in range(4):
            texts = [words(100 * count + 17 * draw + i, 50) for i in range(count)]
            for order in (1, -1):
                folder = tmp_path / f"{draw}{order}"
                folder.mkdir()
                for i, text in enumerate(texts[::order]):
                    (folder / f"{i:02d}.txt").write_text(text)
            corpus, reordered = (
                prepare(tmp_path / f"{draw}{order}" / "*.txt") for order in (1, -1)
            )
            held, hashes = texts_of(corpus.valid), [splits.hash_of(t.encode()) for t in texts]
            assert sorted(held) == sorted(texts_of(reordered.valid))
            lowest = sorted(texts, key=lambda text: splits.hash_of(text.encode())[:8])
            below = [h for h in hashes if splits.split_of(h, 0.1) == "valid"]
            assert sorted(held) == sorted(lowest[: len(below) or math.ceil(0.1 * count)])
            assert sorted(texts_of(corpus.train) + held) == sorted(texts)

    @pytest.mark.parametrize("fraction", [0.1, 0.3, 0.45])
    def test_few_documents_leave_some_to_train_on(self, fraction):
        for draw in range(300):
            hashes = [splits.hash_of(f"{draw} {i}".encode()) for i in range(2 + draw % 6)]
            given = {h: splits.split_of(h, fraction, fraction) for h in hashes}
            moved = splits.moved(hashes, fraction, fraction)
            assert all(given[h] == "train" for h in moved)
            kept = [h for h in hashes if given[h] == "train" and h not in moved]
            assert kept or "train" not in given.values()
            if fraction == 0.1 and list(given.values()).count("train") > 2:
                assert {"valid", "choose"} <= {moved.get(h, given[h]) for h in hashes}

    def test_few_documents_fill_three_splits(self, prepare, tmp_path):
        for i in range(6):
            (tmp_path / f"{i}.txt").write_text(words(i, 50))
        corpus = prepare(tmp_path / "*.txt", choose_fraction=0.05)
        counts = [len(split.lengths) for split in (corpus.train, corpus.valid, corpus.choose)]
        assert counts[1] >= 1 and counts[2] >= 1 and sum(counts) == 6 and counts[0] >= 1

    def test_few_documents_beside_a_stated_split_fill_a_third_one(self, prepare, tmp_path):
        text = "".join(f"line {n} {words(n, 20)}\n" for n in range(50)) + "the end"
        for name, content in (("train.txt", text), ("valid.txt", words(99, 50))):
            (tmp_path / name).write_text(content)
        stated = {"valid_path": f"{tmp_path}/valid.txt", "choose_fraction": 0.2}
        corpus = prepare(tmp_path / "train.txt", **stated)
        (train,), (choose,), (valid,) = map(texts_of, (corpus.train, corpus.choose, corpus.valid))
        assert train + choose == text and valid == words(99, 50)
        assert len(choose) / len(text) == pytest.approx(0.2, abs=0.02)

    def test_a_long_line_after_a_short_one_is_cut(self, prepare, tmp_path):
        (tmp_path / "a.txt").write_text("A title\n" + "x" * 1000)
        corpus = prepare(tmp_path / "a.txt")
        assert len(corpus.valid.tokens) == pytest.approx(100, abs=2)

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_very_few_documents_hold_out_the_end_of_each(self, count, prepare, tmp_path):
        texts = ["".join(f"line {n} {words(n + i, 20)}\n" for n in range(50)) for i in range(count)]
        for i, text in enumerate(texts):
            (tmp_path / f"{i}.txt").write_text(text)
        corpus = prepare(tmp_path / "*.txt", cut_one=True)
        parts = zip(texts_of(corpus.train), texts_of(corpus.valid), strict=True)
        assert [begin + end for begin, end in parts] == texts
        assert len(corpus.valid.tokens) / sum(map(len, texts)) == pytest.approx(0.1, abs=0.02)
        whole = prepare(tmp_path / "*.txt", cut_one=False, valid_fraction=0.0)
        assert not whole.train.without(corpus.digests).any()  # each counts as trained on
