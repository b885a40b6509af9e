"""python scripts/gpu_wheels.py [--wheels=wheels] [--tokens=prepared]

Downloads the packages that training and evaluation import beyond jax, jaxlib, flax, optax, orbax
and numpy, for x86-64 Linux and Python 3.11 to 3.13, in the versions of constraints.txt: all that a
machine without a network needs whose image has its own jax. Prints the size of the repository, the
wheels and the prepared tokens (scripts/prepare_data.py --tokens_out), and ends with 74 if their
sum exceeds 60 MiB.

PYTHONPATH=. python scripts/gpu_wheels.py --install=FOLDER [--wheels=wheels]

On that machine: unpacks the packages that this Python lacks into FOLDER and prints the PYTHONPATH
with which programs find them and this project. Needs pip and nothing else.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from posenc_jax import errors, terminal

ROOT = Path(__file__).parent.parent.resolve()

PACKAGES = {  # by the name that is imported
    "absl": "absl-py",
    "ml_collections": "ml-collections",
    "tqdm": "tqdm",
    "yaml": "pyyaml",
}
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
MOST = 60 * 2**20  # bytes to carry


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--wheels", type=Path, default=ROOT / "wheels", help="their folder")
    parser.add_argument("--tokens", type=Path, default=ROOT / "prepared", help="of prepared tokens")
    parser.add_argument("--install", type=Path, help="unpack what is missing into this folder")
    options = parser.parse_args(argv[1:])
    if options.install:
        return terminal.code_of(lambda: install(options.wheels, options.install))
    return terminal.code_of(lambda: fill(options.wheels, options.tokens))


def fill(wheels: Path, tokens: Path) -> None:
    """One folder for all Pythons; a wheel that fits several is kept once."""
    wheels.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheels.parent, prefix=".wheels-") as scratch:
        for python in PYTHONS:
            _pip("download", *_wanted(python), f"--dest={scratch}", *PACKAGES.values())
        shutil.rmtree(wheels, ignore_errors=True)
        wheels.mkdir()
        for path in sorted(Path(scratch).glob("*.whl")):
            shutil.move(path, wheels / path.name)
    for path in sorted(wheels.iterdir()):
        terminal.say(f"{path.stat().st_size / 2**20:8.2f} MiB  {path.name}")
    check({"repository": repository(), "wheels": size(wheels), "tokens": size(tokens)})


def _wanted(python: str) -> list[str]:
    platforms = [f"--platform={name}" for name in PLATFORMS]
    exact = ["--no-deps", "--only-binary=:all:", f"--python-version={python}"]
    return [*exact, *platforms, f"--constraint={ROOT / 'constraints.txt'}"]


def install(wheels: Path, folder: Path) -> None:
    there = {name for name in PACKAGES if (folder / name).exists() or _importable(name)}
    missing = [package for name, package in PACKAGES.items() if name not in there]
    if missing:
        if not wheels.is_dir():
            raise errors.Stop(
                f"{', '.join(missing)} cannot be imported, and there is no folder {wheels}; "
                "fill it with make gpu-wheels on a machine with a network"
            )
        exact = ["--no-index", f"--find-links={wheels}", "--no-deps", f"--target={folder}"]
        _pip("install", "--isolated", *exact, *missing)
    terminal.say(f"installed: {', '.join(missing) or 'nothing, all is there'}")
    terminal.say(f"PYTHONPATH={ROOT}{os.pathsep}{folder.resolve()}")


def _importable(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def check(sizes: dict[str, int]) -> None:
    """Prints the sizes and refuses a sum above the limit."""
    for name, taken in sizes.items():
        terminal.say(f"{taken / 2**20:8.2f} MiB  {name}")
    total = sum(sizes.values())
    terminal.say(f"{total / 2**20:8.2f} MiB  in all, of {MOST / 2**20:.0f}")
    if total > MOST:
        raise errors.Stop(
            f"{total / 2**20:.1f} MiB exceed the {MOST / 2**20:.0f} that may be carried; "
            "prepare fewer tokens (scripts/prepare_data.py --limit)"
        )


def repository() -> int:
    """Bytes of the files in git; 0 in a copy without git, which has been carried already."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        names = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")
    except (OSError, subprocess.CalledProcessError):
        return 0
    paths = (ROOT / os.fsdecode(name) for name in names if name)
    return sum(path.stat().st_size for path in paths if path.is_file())


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next(
            (line for line in said if line.startswith("ERROR")), (said or ["no words"])[-1]
        )
        raise errors.Stop(f"pip {words[0]} failed: {reason}")


if __name__ == "__main__":
    sys.exit(terminal.program(main))
