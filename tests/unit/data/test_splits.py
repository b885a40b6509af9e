"""Which documents are trained on, held out and there to choose on, and how they are told again."""

import gzip
import json
import math

import numpy as np
import pytest
import tokenizers

from configs import base
from posenc_jax.data import corpora, sources, splits
from posenc_jax.errors import DataError


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
        return corpora.prepare(data, 0, quiet=True)

    return make


def texts_of(split):
    pairs = zip(split.starts, split.starts[1:], strict=False)
    return [bytes(split.tokens[start:end]).decode() for start, end in pairs]


class TestDigests:
    def test_one_text_has_one_digest_wherever_it_is_found(self, prepare, tmp_path):
        lines = [f"  {words(i)}\r\nend {i}\n" for i in range(4)]
        (tmp_path / "a").mkdir()
        for i, line in enumerate(lines):  # as a file, under another path, without what surrounds it
            (tmp_path / "a" / f"{i}.txt").write_bytes(line.strip().replace("\r\n", "\n").encode())
        with gzip.open(tmp_path / "rows.jsonl.gz", "wt", newline="") as stream:
            for line in lines:
                stream.write(json.dumps({"text": line}) + "\n")
        files = prepare(tmp_path / "a" / "*.txt", valid_fraction=0.0).train
        rows = prepare(tmp_path / "rows.jsonl.gz", "jsonl", field="text", valid_fraction=0.0).train
        assert files.digests.dtype == np.uint64 and len(set(files.digests.tolist())) == 4
        np.testing.assert_array_equal(files.digests, rows.digests)
        assert files.digests.tolist() == [sources.digest(line.encode()) for line in lines]

    def test_the_number_itself_is_kept(self):
        """Of sha256, which others can compute."""
        assert sources.digest(b"abc") == 0xBA7816BF8F01CFEA == sources.digest(b"\r\nabc \n")
        assert sources.digest(b"a b") != sources.digest(b"ab")

    def test_documents_of_a_split_are_named_in_order(self, prepare, folder):
        made = prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=0.3)
        for split in (made.train, made.valid, made.choose):
            expected = [sources.digest(text.encode()) for text in texts_of(split)]
            assert split.digests.tolist() == expected and expected

    def test_documents_of_another_text_are_left_out(self, prepare, folder, tmp_path):
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

    def test_equal_texts_are_dropped_by_every_byte(self, prepare, tmp_path):
        (tmp_path / "a.txt").write_text(words(0))
        (tmp_path / "b.txt").write_text(words(0) + "\n")
        (tmp_path / "c.txt").write_text(words(0))
        made = prepare(tmp_path / "*.txt", valid_fraction=0.0)
        assert made.card["counts"] == {"documents": 2, "duplicates": 1, "empty": 0}


class TestPackages:
    """A file's own package tells much of it, so what is held out is held out whole."""

    @pytest.fixture
    def stdlib(self, tmp_path, monkeypatch):
        """A small library: modules, and packages of two files each."""
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
        made = prepare("", "stdlib", valid_fraction=0.3, choose_fraction=0.3, **fields)
        return [
            {text.split()[1] for text in texts_of(split)}
            for split in (made.train, made.valid, made.choose)
        ]

    def test_a_package_is_on_one_side_with_all_of_its_files(self, prepare, stdlib):
        by_package = self.parts(prepare, hold_out="package")
        assert sum(map(len, by_package)) == len(stdlib) and all(by_package)
        by_file = self.parts(prepare, hold_out="document")
        assert sum(map(len, by_file)) > len(stdlib)
        assert by_file == self.parts(prepare)

    def test_files_know_with_which_others_they_were_held_out(self, prepare, stdlib):
        fields = {"valid_fraction": 0.3, "choose_fraction": 0.3}
        made = prepare("", "stdlib", hold_out="package", **fields)
        for split in (made.train, made.valid, made.choose, made.whole()):
            of = {}
            for text, group in zip(texts_of(split), split.groups, strict=True):
                assert of.setdefault(text.split()[1], group) == group
            assert len(set(of.values())) == len(of)
        assert len(made.whole().groups) > len(of) == len(stdlib)
        assert prepare("", "stdlib", **fields).valid.groups is None
        path = made.folder / "valid.groups.npy"
        path.write_bytes(b"not what was written")
        with pytest.raises(DataError, match=r"was written \(valid\.groups\.npy.*; delete it"):
            corpora.load(made.folder)
        np.save(path, made.valid.groups[1:])
        with pytest.raises(
            DataError, match=r"valid\.groups\.npy: .* groups for .*; write it again"
        ):
            corpora.load(made.folder, "write it again")
        for split in ("train", "valid", "choose"):  # what is read is the same without
            (made.folder / f"{split}.groups.npy").unlink()
        again = corpora.load(made.folder)
        assert again.fingerprint == made.fingerprint and again.valid.groups is None

    def test_a_package_stays_where_it_is_when_its_text_changes(self, prepare, stdlib, tmp_path):
        before = self.parts(prepare, hold_out="package")
        for path in (tmp_path / "lib").rglob("*.py"):
            path.write_text(path.read_text() + " and more")
        assert self.parts(prepare, hold_out="package") == before

    def test_the_cache_of_earlier_runs_is_that_of_documents(self, prepare, stdlib):
        assert "hold_out" not in prepare("", "stdlib").card["identity"]
        assert prepare("", "stdlib", hold_out="package").card["identity"]["hold_out"] == "package"


class TestFingerprint:
    @pytest.fixture
    def letters(self, tmp_path):
        """One token per letter."""
        vocab = {"?": 0, " ": 1} | {letter: 2 + i for i, letter in enumerate("abcdefgh")}
        learned = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="?"))
        learned.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        learned.decoder = tokenizers.decoders.Fuse()
        learned.save(str(tmp_path / "letters.json"))
        return str(tmp_path / "letters.json")

    def test_it_is_of_the_text_and_not_of_where_it_is(self, prepare, folder, tmp_path):
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
    def test_an_edited_card_is_not_believed(self, change, prepare, folder):
        made = prepare(folder / "*.txt")
        path = made.folder / "corpus.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(DataError, match="has changed since it was written; delete it"):
            prepare(folder / "*.txt")

    @pytest.mark.parametrize("name", ["valid.digests.npy", "choose.tokens"])
    def test_every_file_counts(self, name, prepare, folder):
        made = prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=0.3)
        whole = (made.folder / name).read_bytes()
        (made.folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DataError, match="has changed since it was written; delete it"):
            prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=0.3)

    @pytest.mark.parametrize(
        "card",
        ["[]", "3", "null", "{}", '{"fingerprint": "a"}', "[[", "splits", "lossy", "vocab"],
    )
    def test_a_card_of_another_shape_is_none_and_made_again(self, card, prepare, folder):
        made = prepare(folder / "*.txt")
        path = made.folder / "corpus.json"
        if card in made.card:
            card = json.dumps(made.card | {card: [1]})
        path.write_text(card)
        again = prepare(folder / "*.txt")
        assert again.fingerprint == made.fingerprint
        assert json.loads(path.read_text())["splits"] == made.card["splits"]


class TestChoosing:
    def test_what_is_held_out_stays_so_with_a_third_split(self, prepare, folder):
        two = prepare(folder / "*.txt", valid_fraction=0.3)
        assert len(two.choose.tokens) == 0 == len(two.choose.digests)
        for fraction in (0.2, 0.5):
            three = prepare(folder / "*.txt", valid_fraction=0.3, choose_fraction=fraction)
            assert texts_of(three.valid) == texts_of(two.valid) and texts_of(three.valid)
            splits = [texts_of(split) for split in (three.train, three.valid, three.choose)]
            assert sorted(sum(splits, [])) == sorted(words(i) for i in range(30))
            assert splits[2] == [t for t in texts_of(two.train) if t not in set(splits[0])]
            assert splits[0] and splits[2]

    def test_without_it_a_cache_is_what_it_was(self, prepare, folder):
        made = prepare(folder / "*.txt")
        assert "choose_fraction" not in made.card["identity"]
        other = prepare(folder / "*.txt", choose_fraction=0.3)
        assert other.card["identity"]["choose_fraction"] == 0.3
        assert other.folder != made.folder


class TestFewDocuments:
    @pytest.mark.parametrize("count", [5, 6, 8, 10, 13])
    def test_some_are_held_out_whatever_their_hashes(self, count, prepare, tmp_path):
        """Those of the lowest hashes where no hash is below the fraction, and in any order."""
        for draw in range(4):
            texts = [words(100 * count + 17 * draw + i, 50) for i in range(count)]
            for order in (1, -1):
                folder = tmp_path / f"{draw}{order}"
                folder.mkdir()
                for i, text in enumerate(texts[::order]):
                    (folder / f"{i:02d}.txt").write_text(text)
            one, other = (prepare(tmp_path / f"{draw}{order}" / "*.txt") for order in (1, -1))
            held, hashes = texts_of(one.valid), [splits.hash_of(t.encode()) for t in texts]
            assert sorted(held) == sorted(texts_of(other.valid))
            lowest = sorted(texts, key=lambda text: splits.hash_of(text.encode())[:8])
            below = [h for h in hashes if splits.split_of(h, 0.1) == "valid"]
            assert sorted(held) == sorted(lowest[: len(below) or math.ceil(0.1 * count)])
            assert sorted(texts_of(one.train) + held) == sorted(texts)

    @pytest.mark.parametrize("fraction", [0.1, 0.3, 0.45])
    def test_some_are_left_to_train_on_and_a_filled_split_keeps_its_own(self, fraction):
        for draw in range(300):
            hashes = [splits.hash_of(f"{draw} {i}".encode()) for i in range(2 + draw % 6)]
            given = {h: splits.split_of(h, fraction, fraction) for h in hashes}
            moved = splits.moved(hashes, fraction, fraction)
            assert all(given[own] == "train" for own in moved)
            kept = [h for h in hashes if given[h] == "train" and h not in moved]
            assert kept or "train" not in given.values()
            if fraction == 0.1 and list(given.values()).count("train") > 2:
                assert {"valid", "choose"} <= {moved.get(h, given[h]) for h in hashes}

    def test_a_third_split_takes_the_other_end(self, prepare, tmp_path):
        for i in range(6):
            (tmp_path / f"{i}.txt").write_text(words(i, 50))
        made = prepare(tmp_path / "*.txt", choose_fraction=0.05)
        counts = [len(split.lengths) for split in (made.train, made.valid, made.choose)]
        assert counts[1] >= 1 and counts[2] >= 1 and sum(counts) == 6 and counts[0] >= 1

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_of_very_few_the_end_of_each_is_held_out(self, count, prepare, tmp_path):
        texts = ["".join(f"line {n} {words(n + i, 20)}\n" for n in range(50)) for i in range(count)]
        for i, text in enumerate(texts):
            (tmp_path / f"{i}.txt").write_text(text)
        made = prepare(tmp_path / "*.txt", cut_one=True)
        parts = zip(texts_of(made.train), texts_of(made.valid), strict=True)
        assert [begin + end for begin, end in parts] == texts
        assert len(made.valid.tokens) / sum(map(len, texts)) == pytest.approx(0.1, abs=0.02)
        whole = prepare(tmp_path / "*.txt", cut_one=False, valid_fraction=0.0)
        assert not whole.train.without(made.digests).any()  # each is known as trained on
