"""Installs the libraries that these tests compare with, once, beside the project's environment."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDER = ROOT / ".venv-reference"
REQUIREMENTS = HERE / "requirements.txt"


@pytest.fixture(scope="session", autouse=True)
def installed():
    FOLDER.mkdir(exist_ok=True)
    done = FOLDER / "requirements.txt"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test workers, one installation
        if not done.exists() or done.read_text() != REQUIREMENTS.read_text():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
            command += ["--target", FOLDER / "site", "--requirement", REQUIREMENTS]
            command += ["--constraint", ROOT / "constraints.txt"]
            subprocess.run(command, check=True)
            done.write_text(REQUIREMENTS.read_text())
    sys.path.append(str(FOLDER / "site"))  # last: what the project pins stays what it imports
