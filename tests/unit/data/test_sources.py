"""Sources of text: named data sets, compressed files, folders and held-out parts."""

import gzip
import io
import json

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from configured import problems_of
from prepared_texts import letters, texts_of

from configs import base
from posenc_jax.data import sources
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

    @pytest.mark.parametrize("limit", [None, 10_000])
    def test_a_changed_data_set_is_another_text(self, limit, prepare, tmp_path):
        (tmp_path / "set").mkdir()
        fingerprints, fields = set(), {"path": f"{tmp_path}/set", "valid_fraction": 0.0}
        for count in (4, 5):
            rows = "".join(json.dumps({"text": letters(i)}) + "\n" for i in range(count))
            (tmp_path / "set" / "train.jsonl").write_text(rows)
            corpus = prepare(source="hub", limit=limit, **fields)
            assert texts_of(corpus.train) == [letters(i) for i in range(count)]
            fingerprints.add(corpus.fingerprint)
        assert len(fingerprints) == 2

    def test_a_limit_streams_whole_documents_and_stops(self, prepare, tmp_path):
        """Files after the limit are not opened, and nothing but tokens is written."""
        (tmp_path / "set").mkdir()
        texts = [letters(i, 40) for i in range(768)]
        for number in range(3):
            rows = table(*texts[256 * number : 256 * number + 256])
            pyarrow.parquet.write_table(rows, tmp_path / "set" / f"train-{number:05d}.parquet")
        (tmp_path / "set" / "train-00002.parquet").write_bytes(b"damaged")
        fields = {"source": "hub", "path": f"{tmp_path}/set", "valid_fraction": 0.0}
        for limit, count in ((1, 1), (12_000, 300), (12_001, 301)):
            corpus = prepare(limit=limit, **fields)
            assert texts_of(corpus.train) == texts[:count]
        assert not list((tmp_path / "home").rglob("*.arrow"))
        for others in ({"limit": 30_000}, {}):
            with pytest.raises(DataError, match="cannot load .*set', split 'train'"):
                prepare(**fields, **others)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({}, "Config name is missing.*'raw'"),
            ({"name": "row"}, "data.name=row, split 'train'.*not found.*'raw', 'clean'"),
            ({"name": "raw", "split": "tset"}, "split 'tset': .* split.*'train', 'vali"),
            ({"name": "raw", "field": "body"}, "no field 'body' .data.field.; has: text, id"),
            ({"name": "raw", "field": "id"}, "row 0: no text in field 'id' .data.field.; got int"),
            ({"name": "raw", "revision": "main"}, "data.revision has no effect: .* is a folder"),
        ],
    )
    @pytest.mark.parametrize("limit", [None, 100])
    def test_missing_names_are_refused_with_the_choices(
        self, fields, message, limit, data_set, prepare
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            prepare(source="hub", path=str(data_set), limit=limit, **fields)

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
        named = ("wikitext", fields["name"]), {"split": "test", "revision": "b08601e"}
        assert calls and all(call == named for call in calls)


ARTICLES = [" = One = \n", "", "of one\n", " = = More = = \n", " = Two = \n", "of two"]
JOINED = [" = One = \n\nof one\n = = More = = \n", " = Two = \nof two\n"]


class TestDocumentsOfManyRows:
    def test_rows_between_headings_form_one_document(self, prepare, tmp_path):
        pyarrow.parquet.write_table(table("", *ARTICLES), tmp_path / "a.parquet")
        source = {"source": "parquet", "path": f"{tmp_path}/a.parquet", "valid_fraction": 0.0}
        corpus, alone = prepare(begins=" = [^=]", **source), prepare(**source)
        assert texts_of(corpus.train) == ["\n" + JOINED[0], JOINED[1]]
        assert len(alone.train.lengths) == 5 and alone.fingerprint != corpus.fingerprint

    def test_lines_between_headings_form_one_document(self, prepare, tmp_path):
        text = " \n" + "".join(JOINED)
        (tmp_path / "a.txt").write_text(text)
        source = {"source": "text", "path": f"{tmp_path}/a.txt", "valid_fraction": 0.0}
        for begins in ("^ = [^=]", "(?i) = (ONE|Two)", r" = \w+ = $"):
            corpus = prepare(begins=begins, **source)
            assert texts_of(corpus.train) == [" \n" + JOINED[0], JOINED[1]]
        assert texts_of(prepare(begins="nowhere", **source).train) == [text]
        (tmp_path / "a.txt").write_text("École\nÜber\nÈve\n")
        assert texts_of(prepare(begins="[ÉÈ]", **source).train) == ["École\nÜber\n", "Ève\n"]


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

    @pytest.mark.parametrize(("source", "name"), [("jsonl", "a.jsonl.gz"), ("text", "a.txt.gz")])
    def test_damaged_compressed_files_are_named(self, source, name, prepare, tmp_path):
        packed = gzip.compress(b"".join(b'{"text": "line %d"}\n' % i for i in range(500)))
        for place in range(10, len(packed), 41):
            damaged = packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :]
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(DataError, match=name):
                prepare(source=source, path=str(tmp_path / name))


class TestHeldOutByName:
    def test_copies_of_held_out_files_are_not_trained_on(self, prepare, tmp_path):
        for folder, seeds in (("train", range(5)), ("valid", range(4, 7))):
            (tmp_path / folder).mkdir()
            for i in seeds:
                (tmp_path / folder / f"{i}.txt").write_text(letters(i))
        paths = {"path": f"{tmp_path}/train", "valid_path": f"{tmp_path}/valid/*.txt"}
        corpus = prepare(source="text", **paths)
        assert texts_of(corpus.train) == [letters(i) for i in range(4)]
        assert texts_of(corpus.valid) == [letters(i) for i in range(4, 7)]
        assert corpus.card["counts"]["duplicates"] == 1

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"begins": "("}, "data.begins must be a regular expression; got '('"),
            ({"valid_path": "b", "valid_fraction": 0.2}, "0.2 has no effect beside data.valid"),
            ({"valid_split": "test"}, "data.valid_split = 'test' has no effect with data.source"),
            (
                {"source": "hub", "split": "test", "valid_split": "test"},
                "data.valid_split must be another split than data.split; both are 'test'",
            ),
        ],
    )
    def test_mistakes_in_fields_are_refused(self, fields, message):
        config = base.get_config()
        config.data.update(**{"source": "text", "path": "a"} | fields)
        (problem,) = problems_of(config)
        assert message in problem


@pytest.mark.parametrize("name", sorted({*sources.names()} - {"hub", "mixture", "unknown"}))
def test_a_source_without_a_limit_names_the_program_that_has_one(name):
    fields = {"tokens": "folder"} if name == "tokens" else {"source": name}
    problem = sources.build(fields | {"limit": 9}, 2)[1][0]
    assert "data.limit = 9 has no effect with" in problem and "prepare_data.py" in problem
