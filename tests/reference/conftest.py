"""Installs the libraries that these tests compare with, once, beside the project's environment."""

from pathlib import Path

import pytest

from benchmarks import peers


@pytest.fixture(scope="session", autouse=True)
def installed():
    peers.install(peers.ROOT / ".venv-reference", Path(__file__).parent / "requirements.txt")
