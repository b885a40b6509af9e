"""Units start no program of ours; that is what tests/programs is for."""

import subprocess
import sys
import zlib
from collections import defaultdict

import pytest


@pytest.fixture(autouse=True)
def no_program(request, monkeypatch):
    start = subprocess.Popen.__init__

    def checked(self, args, *more, **options):
        ours = not isinstance(args, str) and str(next(iter(args))) == sys.executable
        assert not ours, "a test that starts a program belongs into tests/programs"
        start(self, args, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", checked)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of a test marked `sampled` every other case runs by default, and all of them where tests are
    chosen by name or with the slow ones.

    Which half differs from test to test, so that every encoding has half of the properties tried.
    """
    if config.option.keyword or any("tests/unit" in word and "::" in word for word in config.args):
        return
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and hasattr(item, "callspec"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, own in cases.items():
        offset = zlib.crc32(name.encode()) % 2 if len(own) > 1 else 0
        for item in own[1 - offset :: 2]:
            item.add_marker(pytest.mark.slow)
