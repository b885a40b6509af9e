"""Sources of text: named data sets, compressed files, folders and held-out parts."""

import gzip
import io
import json

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from configured import problems_of
from prepared_texts import letters, texts_of

from configs import base
from posenc_jax.data import tokenizer
from posenc_jax.evaluation import windows
from posenc_jax.runtime.errors import ConfigError, DataError


def table(*texts):
    return pyarrow.table({"text": list(texts), "id": list(range(len(texts)))})


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "home"))
    datasets.disable_progress_bars()


@pytest.fixture
def data_set(tmp_path):
    """A data set with two configurations in the Hub's layout."""
    folder, lines = tmp_path / "set", []
    for name in ("raw", "clean"):
        (folder / name).mkdir(parents=True)
        lines += [f"- config_name: {name}", "  data_files:"]
        for split in ("train", "validation", "test"):
            lines += [f"  - split: {split}", f"    path: {name}/{split}-*"]
            rows = table(*(f"{name} {split} {i}" for i in range(3)))
            pyarrow.parquet.write_table(rows, folder / name / f"{split}-00000-of-00001.parquet")
    (folder / "README.md").write_text("\n".join(["---", "configs:", *lines, "---", ""]))
    return folder


class TestHub:
    def test_configurations_and_splits_are_read_by_name(self, data_set, prepare):
        source = {"source": "hub", "path": str(data_set), "valid_split": "validation"}
        for name in ("raw", "clean"):
            corpus = prepare(name=name, **source)
            assert texts_of(corpus.train) == [f"{name} train {i}" for i in range(3)]
            assert texts_of(corpus.valid) == [f"{name} validation {i}" for i in range(3)]
        test = prepare(name="raw", **source | {"split": "test"})
        assert texts_of(test.train) == [f"raw test {i}" for i in range(3)]

    def test_a_changed_data_set_is_another_text(self, prepare, tmp_path):
        (tmp_path / "set").mkdir()
        fingerprints = set()
        for count in (4, 5):
            rows = "".join(json.dumps({"text": letters(i)}) + "\n" for i in range(count))
            (tmp_path / "set" / "train.jsonl").write_text(rows)
            corpus = prepare(source="hub", path=f"{tmp_path}/set", valid_fraction=0.0)
            assert texts_of(corpus.train) == [letters(i) for i in range(count)]
            fingerprints.add(corpus.fingerprint)
        assert len(fingerprints) == 2

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({}, "Config name is missing.*'raw'"),
            ({"name": "row"}, "data.name=row, split 'train'.*not found.*'raw', 'clean'"),
            ({"name": "raw", "split": "tset"}, "split 'tset': Unknown split.*'train', 'vali"),
            ({"name": "raw", "field": "body"}, "no field 'body' .data.field.; has: text, id"),
            ({"name": "raw", "field": "id"}, "row 0: no text in field 'id' .data.field.; got int"),
            ({"name": "raw", "revision": "main"}, "data.revision has no effect: .* is a folder"),
        ],
    )
    def test_missing_names_are_refused_with_the_choices(self, fields, message, data_set, prepare):
        with pytest.raises((ConfigError, DataError), match=message):
            prepare(source="hub", path=str(data_set), **fields)

    def test_folders_of_save_to_disk_are_read(self, data_set, prepare, tmp_path):
        sets = datasets.load_dataset(str(data_set), "raw")
        sets.save_to_disk(str(tmp_path / "all"))
        sets["test"].save_to_disk(str(tmp_path / "one"))
        both = prepare(source="hub", path=str(tmp_path / "all"), valid_split="validation")
        assert texts_of(both.valid) == [f"raw validation {i}" for i in range(3)]
        single = {"source": "hub", "path": str(tmp_path / "one")}
        corpus = prepare(split="test", valid_fraction=0.0, **single)
        assert texts_of(corpus.train) == [f"raw test {i}" for i in range(3)]
        with pytest.raises(DataError, match="split 'train': have: test"):
            prepare(**single)
        with pytest.raises(ConfigError, match="data.name has no effect"):
            prepare(name="raw", **single)

    def test_name_revision_and_split_reach_the_hub_unchanged(self, prepare, monkeypatch):
        calls = []

        def load(*words, **fields):
            calls.append((words, fields))
            return datasets.Dataset.from_dict({"text": ["abc", "defg"]})

        monkeypatch.setattr(datasets, "load_dataset", load)
        fields = {"name": "wikitext-103-raw-v1", "revision": "b08601e", "split": "test"}
        prepare(source="hub", path="wikitext", valid_fraction=0.0, **fields)
        assert set(map(str, calls)) == {
            str(
                (
                    ("wikitext", "wikitext-103-raw-v1"),
                    {"split": "test", "revision": "b08601e"},
                )
            )
        }


ARTICLES = [" = One = \n", "", "of one\n", " = = More = = \n", " = Two = \n", "of two"]
JOINED = [" = One = \n\nof one\n = = More = = \n", " = Two = \nof two\n"]


class TestDocumentsOfManyRows:
    def test_rows_between_headings_form_one_document(self, prepare, tmp_path):
        pyarrow.parquet.write_table(table("", *ARTICLES), tmp_path / "a.parquet")
        fields = {"begins": " = [^=]", "valid_fraction": 0.0}
        corpus = prepare(source="parquet", path=f"{tmp_path}/a.parquet", **fields)
        assert texts_of(corpus.train) == ["\n" + JOINED[0], JOINED[1]]
        alone = prepare(source="parquet", path=f"{tmp_path}/a.parquet", valid_fraction=0.0)
        assert len(alone.train.lengths) == 5 and alone.fingerprint != corpus.fingerprint

    def test_lines_between_headings_form_one_document(self, prepare, tmp_path):
        text = " \n" + "".join(JOINED)
        (tmp_path / "a.txt").write_text(text)
        source = {"source": "text", "path": f"{tmp_path}/a.txt", "valid_fraction": 0.0}
        corpus = prepare(begins="^ = [^=]", **source)
        assert texts_of(corpus.train) == [" \n" + JOINED[0], JOINED[1]]
        assert texts_of(prepare(begins="nowhere", **source).train) == [text]

    def test_an_invalid_regular_expression_is_refused(self):
        config = base.get_config()
        config.data.update(source="text", path="a.txt", begins="(")
        (problem,) = problems_of(config)
        assert "data.begins must be a regular expression; got '('" in problem


class TestFiles:
    def test_a_folder_is_read_with_compressed_and_nested_files(self, prepare, tmp_path):
        folder = tmp_path / "folder"
        (folder / "inner").mkdir(parents=True)
        rows = [json.dumps({"body": letters(i), "id": i}) + "\n\n" for i in range(4)]
        (folder / "a.jsonl").write_text(rows[0])
        (folder / "b.jsonl.gz").write_bytes(gzip.compress(rows[1].encode()))
        with pyarrow.OSFile(str(folder / "inner" / "c.jsonl.zst"), "wb") as file:
            with pyarrow.CompressedOutputStream(file, "zstd") as stream:
                stream.write(rows[2].encode())
        (folder / ".hidden.jsonl").write_text(rows[3])
        (folder / "notes.txt").write_text("not a row")
        corpus = prepare(source="jsonl", path=str(folder), field="body", valid_fraction=0.0)
        assert texts_of(corpus.train) == [letters(i) for i in range(3)]

    @pytest.mark.parametrize("name", ["a.parquet", "a.txt.zst"])
    def test_a_damaged_file_is_named(self, name, prepare, tmp_path):
        whole = io.BytesIO()
        pyarrow.parquet.write_table(table(*map(letters, range(50))), whole, compression="zstd")
        (tmp_path / name).write_bytes(whole.getvalue()[:-20])
        source = "parquet" if name.endswith("parquet") else "text"
        with pytest.raises(DataError, match=f"cannot read .*{name}"):
            prepare(source=source, path=str(tmp_path / name))

    @pytest.mark.parametrize("source", ["jsonl", "text"])
    def test_damaged_compressed_files_are_named(self, source, prepare, tmp_path):
        packed = gzip.compress(b"".join(b'{"text": "line %d"}\n' % i for i in range(500)))
        for place in range(10, len(packed), 41):
            damaged = packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :]
            (tmp_path / "a.jsonl.gz").write_bytes(damaged)
            with pytest.raises(DataError, match="a.jsonl.gz"):
                prepare(source=source, path=str(tmp_path / "a.jsonl.gz"))


class TestHeldOutByName:
    def test_copies_of_held_out_files_are_not_trained_on(self, prepare, tmp_path):
        for folder, seeds in (("train", range(5)), ("valid", range(4, 7))):
            (tmp_path / folder).mkdir()
            for i in seeds:
                (tmp_path / folder / f"{i}.txt").write_text(letters(i))
        corpus = prepare(
            source="text", path=f"{tmp_path}/train", valid_path=f"{tmp_path}/valid/*.txt"
        )
        assert texts_of(corpus.train) == [letters(i) for i in range(4)]
        assert texts_of(corpus.valid) == [letters(i) for i in range(4, 7)]
        assert corpus.card["counts"]["duplicates"] == 1

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"valid_path": "b", "valid_fraction": 0.2}, "0.2 has no effect beside data.valid"),
            ({"valid_split": "test"}, "data.valid_split = 'test' has no effect with data.source"),
            (
                {"source": "hub", "split": "test", "valid_split": "test"},
                "data.valid_split must be another split than data.split; both are 'test'",
            ),
        ],
    )
    def test_fields_without_effect_are_refused(self, fields, message):
        config = base.get_config()
        config.data.update(**{"source": "text", "path": "a"} | fields)
        assert message in "\n".join(problems_of(config))


class TestOneDocument:
    TEXT = "".join(f"line {i}, {letters(i, 30)}\n" for i in range(200))

    @pytest.fixture
    def source(self, tmp_path):
        (tmp_path / "a.txt").write_text(self.TEXT)
        return {"source": "text", "path": f"{tmp_path}/a.txt"}

    def test_the_end_of_one_document_is_held_out_at_a_line_end(self, source, prepare):
        corpus = prepare(valid_fraction=0.1, choose_fraction=0.2, **source)
        parts = [texts_of(split) for split in (corpus.train, corpus.choose, corpus.valid)]
        assert [len(texts) for texts in parts] == [1, 1, 1]
        assert "".join(text for (text,) in parts) == self.TEXT
        assert all(text.endswith("\n") for (text,) in parts)
        shares = [len(text) / len(self.TEXT) for (text,) in parts]
        np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.01)

    def test_one_document_is_recognised_in_whole_and_in_part(self, source, prepare):
        """A copy of the file is excluded from evaluation; its held-out part is not."""
        trained = prepare(**source).digests
        whole = prepare(cut_one=False, valid_fraction=0.0, **source)
        assert not whole.train.without(trained).any()
        corpus = prepare(**source)
        assert not corpus.train.without(trained).any() and corpus.valid.without(trained).all()

    def test_a_long_line_is_cut_between_characters(self, prepare, tmp_path):
        (tmp_path / "a.txt").write_text("東" * 1002)
        corpus = prepare(source="text", path=f"{tmp_path}/a.txt")
        assert texts_of(corpus.train) + texts_of(corpus.valid) == ["東" * 901, "東" * 101]

    def test_one_document_stays_whole_on_request_or_beside_another(self, source, prepare, tmp_path):
        corpus = prepare(cut_one=False, valid_fraction=1e-9, **source)
        assert texts_of(corpus.train) == [self.TEXT]
        (tmp_path / "b.txt").write_text("another")
        corpus = prepare(**source | {"path": f"{tmp_path}/*.txt", "valid_fraction": 1e-9})
        assert texts_of(corpus.train) == [self.TEXT, "another"]

    def test_one_document_is_evaluated_in_stretches(self, source, prepare):
        corpus = prepare(valid_fraction=0.3, **source)
        split = windows.in_stretches(corpus.valid, 64)
        text = windows.choose(split, 64, wanted=1)
        assert len(text.documents) == len(corpus.valid.tokens) // 65 and len(text.documents) > 20
        assert split.starts[-1] == len(corpus.valid.tokens)
        few = windows.choose(windows.in_stretches(corpus.valid, 16), 16, wanted=10**6)
        room = len(corpus.valid.tokens) // 17
        assert len(few.documents) <= 50 < room - 2 <= len(few.starts)
        with pytest.raises(DataError, match="1 of 1 documents have the 1501 tokens"):
            windows.choose(windows.in_stretches(corpus.valid, 1500), 1500)


def test_tokenizing_in_pieces_gives_the_tokens_of_the_whole(monkeypatch):
    """Holds for every tokenizer; text without word boundaries stays whole."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    rng = np.random.default_rng(0)
    letters = [*"ab c\n\n  \t.,é東😀'x1239\u00a0\u2003 \r\n", "foo ", " bar\n", "don't", "<end>"]
    text = "".join(rng.choice(letters, 4_000))
    monkeypatch.setattr(tokenizer, "PIECE_BYTES", 200)
    monkeypatch.setattr(tokenizer, "CUT_CONTEXT", 40)
    bpe = tokenizer.train_bpe([text], 300)
    bpe.add_special_tokens(["<end>"])
    split = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    split += r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    kinds = {
        "plain": {},
        "llama": {
            "pre_tokenizer": pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(tokenizers.Regex(split), "isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            )
        },
        "prefix": {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)},
        "trimmed": {"post_processor": processors.ByteLevel(trim_offsets=True)},
        "normalized": {"normalizer": normalizers.NFKC()},
        "whole": {"pre_tokenizer": None},
        "spaces": {"model": models.WordLevel({"a": 0, "?": 1}, unk_token="?")}
        | {"pre_tokenizer": pre_tokenizers.WhitespaceSplit()},
    }
    cuts = {}
    for name, parts in kinds.items():
        built = tokenizers.Tokenizer.from_str(bpe.to_str())
        for part, value in parts.items():
            setattr(built, part, value)
        encoder = object.__new__(tokenizer.Learned)
        encoder.name, encoder.tokenizer = name, built
        encoder.vocab = 1 + max(built.get_vocab().values())
        encoder.widths = tokenizer.token_widths(built, encoder.vocab)
        cuts[name] = len(list(tokenizer.cut_pieces(text.encode(), built)))
        tokens, widths = encoder.encode(text.encode(), name)
        whole = built.encode(text, add_special_tokens=False)
        np.testing.assert_array_equal(tokens, whole.ids, err_msg=name)
        ends = tokenizer.byte_offsets(text)[[end for _, end in whole.offsets]]
        ends = np.maximum.accumulate(ends)
        ends[-1] = len(text.encode())
        np.testing.assert_array_equal(widths, np.diff(ends, prepend=0), err_msg=name)
    assert cuts["whole"] == 1 and cuts["plain"] > 20 and cuts["llama"] > 20
