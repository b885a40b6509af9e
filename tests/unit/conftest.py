"""Units start no program of ours; that is what tests/programs is for."""

import subprocess
import sys

import pytest


@pytest.fixture(autouse=True)
def no_program(request, monkeypatch):
    start = subprocess.Popen.__init__

    def checked(self, args, *more, **options):
        ours = not isinstance(args, str) and str(next(iter(args))) == sys.executable
        assert not ours, "a test that starts a program belongs into tests/programs"
        start(self, args, *more, **options)

    if request.path.parent.name != "reporting":  # where one or two still do
        monkeypatch.setattr(subprocess.Popen, "__init__", checked)
