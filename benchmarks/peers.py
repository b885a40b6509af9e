"""Install other libraries once, in a folder beside the project's environment."""

import subprocess
import sys
from pathlib import Path

from posenc_jax.runtime.files import alone

ROOT = Path(__file__).parent.parent


def install(folder: Path, requirements: Path) -> None:
    """Install requirements and make them importable, after the project's own pinned packages."""
    folder.mkdir(exist_ok=True)
    done = folder / "requirements.txt"
    with alone(folder / "lock"):  # two at once, one installation
        if not done.exists() or done.read_text() != requirements.read_text():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
            command += ["--target", str(folder / "site"), "--requirement", str(requirements)]
            command += ["--constraint", str(ROOT / "constraints.txt")]
            subprocess.run(command, check=True)
            done.write_text(requirements.read_text())
    sys.path.append(str(folder / "site"))


def download(folder: Path, requirements: str) -> list[Path]:
    """The wheels of requirements with hashes, in order, which are kept and not installed."""
    folder.mkdir(exist_ok=True)
    listed = folder / "requirements.txt"
    if not listed.exists() or listed.read_text() != requirements:
        asked = folder / "asked.txt"
        asked.write_text(requirements)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--dest", str(folder), "--requirement", str(asked)]
        subprocess.run(command, check=True)
        asked.rename(listed)
    return sorted(folder.glob("*.whl"))
