"""Units start no program of ours; that is what tests/programs is for."""

import subprocess
import sys
import zlib
from collections import defaultdict

import pytest

SHARE = 8  # of this many cases of a sampled test one runs by default


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
    """Runs every eighth case of a test marked `sampled` by default, and all of them where tests are
    chosen by name or with the slow ones.

    The choice differs from test to test, so that every encoding has some of each kind of property
    tried, and every property some encodings.
    """
    if config.option.keyword or any("tests/unit" in word and "::" in word for word in config.args):
        return
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and hasattr(item, "callspec"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, own in cases.items():
        offset = zlib.crc32(name.encode()) % min(SHARE, len(own))
        for number, item in enumerate(own):
            if number % SHARE != offset:
                item.add_marker(pytest.mark.slow)
