"""The cache of file hashes ignores invalid entries."""

import json
import os

import pytest

from posenc_jax.data.hashes import FILE, Hashes, hash_of_file


@pytest.fixture
def path(tmp_path):
    """A file with a remembered hash."""
    path = tmp_path / "text.txt"
    path.write_text("some text")
    return path


@pytest.mark.parametrize(
    "entry", [[], [1], "text", 5, None, {}, [1, 2, 3, 4, 5], [[], 2, 3, 4, ""]]
)
def test_an_invalid_entry_is_ignored_and_valid_ones_are_used(entry, path, tmp_path):
    facts = path.stat()
    stamp = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
    other = tmp_path / "other.txt"
    other.write_text("other text")
    known = {os.path.abspath(other): entry, os.path.abspath(path): [*stamp, "remembered"]}
    (tmp_path / FILE).write_text(json.dumps(known))
    hashes = Hashes(tmp_path)
    assert hashes.of(other) == hash_of_file(other)
    assert hashes.of(path) == "remembered"
    assert hashes.describe(other)["sha256"] == hash_of_file(other)


def test_an_entry_without_a_hash_is_ignored(path, tmp_path):
    facts = path.stat()
    stamp = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
    (tmp_path / FILE).write_text(json.dumps({os.path.abspath(path): [*stamp, None]}))
    assert Hashes(tmp_path).of(path) == hash_of_file(path)
