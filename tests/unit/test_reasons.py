"""Error messages in place of tracebacks; tests/programs tests the exit codes."""

import gzip
from importlib import import_module

import pytest
from configured import origin_of, problems_of

from configs import base
from posenc_jax.config import check
from posenc_jax.data import corpora
from posenc_jax.evaluation import methods
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.sweeping import jobs


def prepared(folder, source="jsonl", pattern="*"):
    data = base.get_config().data
    data.update(source=source, path=f"{folder}/{pattern}", cache=str(folder / "cache"))
    if source == "jsonl":
        data.field = "text"
    return corpora.prepare(origin_of(data), 0, quiet=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": "half a pair \\ud800"}', "line 2: a lone surrogate, '.ud800', is not text"),
        (b'{"text": "\xff"}', "line 2: not JSON"),
    ],
)
def test_invalid_lines_are_reported_by_number(line, message, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "whole"}\n' + line + b"\n")
    with pytest.raises(DataError, match=message):
        prepared(tmp_path, pattern="a.jsonl")


@pytest.mark.parametrize("source", ["jsonl", "text"])
def test_damaged_compressed_files_are_named(source, tmp_path):
    packed = gzip.compress(b"".join(b'{"text": "line %d"}\n' % i for i in range(500)))
    for place in range(10, len(packed), 41):
        damaged = packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :]
        (tmp_path / "a.jsonl.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="a.jsonl.gz"):
            prepared(tmp_path, source, "a.jsonl.gz")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch_size", 99_999_999_999, "batch_size must be at most 16,777,216; got 99,999,999,999"),
        ("model.layers", 10**9, "model.layers must be at most 10,000; got 1,000,000,000"),
        ("model.width", 2**40, "model.width must be at most"),
        ("steps", 2**40, "steps must be at most 2,147,483,647"),
        ("train_length", 2**30, "train_length must be at most 16,777,216"),
        ("weight_decay", 1e20, "weight_decay must be a number from 0 to 1000000.0; got 1e+20"),
        ("clip", 1e-320, "clip must be a number from 1e-30"),
        ("learning_rate", float("nan"), "learning_rate must be a finite number above 0; got nan"),
        ("extension.scale", 1e300, "extension.scale must be a number from"),
    ],
)
def test_impossible_sizes_are_refused_before_jax(field, value, message):
    config = base.get_config()
    config.update_from_flattened_dict({field: value})
    if field == "extension.scale":
        config.extension.name, config.encoding = "yarn", {"name": "rope"}
    said = "\n".join(problems_of(config))
    assert message in said and len(said) < 2_000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"windows": 10**20}, "windows must be at most 2,147,483,647"),
        ({"documents": 10**20}, "documents must be at most"),
        ({"tokens_per_call": 10**20}, "tokens_per_call must be at most"),
        ({"extensions": "yarn:1e300"}, "the scale of yarn must be at least 1 and at most 1e6"),
    ],
)
def test_an_evaluation_of_impossible_size_is_refused(fields, message):
    config = import_module("configs.eval").get_config()
    config.update(fields)
    said = check.mistakes_in_evaluation(config) or methods.mistakes(config.extensions)
    assert message in "\n".join(said)


def test_sweep_fields_must_be_names(tmp_path):
    with pytest.raises(ConfigError, match="has the field 5; fields must be names"):
        jobs.jobs_of({"recipe": "configs/rope.py", "grid": [{5: 1}]}, tmp_path)


def test_an_unwritable_cache_names_the_field(tmp_path):
    (tmp_path / "a.txt").write_text("some text " * 50)
    (tmp_path / "cache").write_text("a file is there")
    with pytest.raises(Exception, match="set data.cache to a writable folder") as caught:
        prepared(tmp_path, "text", "a.txt")
    assert caught.value.code == 74


def test_a_relative_cache_home_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/cache")
    assert corpora.cache_folder("") == tmp_path / ".cache" / "posenc-jax"
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert str(corpora.cache_folder("")) == "/some/cache/posenc-jax"
