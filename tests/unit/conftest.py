"""Unit tests start none of our programs; tests/programs does."""

import subprocess
import sys
import zlib
from collections import defaultdict

import pytest

SHARE = 16  # by default one in this many cases of a sampled test runs


@pytest.fixture(autouse=True)
def no_program(request, monkeypatch):
    start = subprocess.Popen.__init__

    def checked(self, args, *more, **options):
        ours = not isinstance(args, str) and str(next(iter(args))) == sys.executable
        assert not ours, "a test that starts a program belongs in tests/programs"
        start(self, args, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", checked)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Run one in sixteen cases of a `sampled` test by default, and all when tests are chosen by
    name or slow tests run.

    The choice differs between tests, so that every encoding meets some of the properties and every
    property some encodings.
    """
    if config.option.keyword or any("tests/unit" in word and "::" in word for word in config.args):
        return
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, items_of in cases.items():
        offset = zlib.crc32(name.encode()) % min(SHARE, len(items_of))
        for number, item in enumerate(items_of):
            if number % SHARE != offset:
                item.add_marker(pytest.mark.slow)
