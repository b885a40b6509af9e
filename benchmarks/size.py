"""python -m benchmarks.size [--rounds=5]

Installs the project into two fresh environments, as the library and as the laboratory, in the
versions of constraints.txt; prints how much is on disk then, before Python compiles any of it, and
what an import of the library costs there: processor time, whatever else runs, and memory in all.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.peers import ROOT
from benchmarks.timing import table

MIB = 2**20
IMPORTS = ("import posenc_jax", "import posenc_jax; posenc_jax.build", "import jax")
# Of the process alone, by the kernel's own books: ru_maxrss begins with that of its parent.
MEASURE = """
import time
begin = time.process_time()
{code}
seconds = time.process_time() - begin
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(peak) / 1024)
"""


def installed(folder: Path, what: str) -> tuple[Path, float]:
    """A fresh environment's Python, and the MiB of what was installed."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    before = size(folder)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--constraint", "constraints.txt", what], cwd=ROOT, check=True)
    return python, (size(folder) - before) / MIB


def size(folder: Path) -> int:
    """Bytes of all files but compiled ones."""
    files = (path for path in folder.rglob("*") if path.suffix != ".pyc")
    return sum(path.stat().st_size for path in files if path.is_file() and not path.is_symlink())


def cost(python: Path, code: str, rounds: int) -> list[str]:
    """Medians of seconds and MiB over fresh processes; the first one compiles and is left out."""
    command = [python, "-c", MEASURE.format(code=code)]
    found = []
    for _ in range(1 + rounds):
        done = subprocess.run(command, cwd="/", check=True, capture_output=True, text=True)
        found.append([float(word) for word in done.stdout.split()])
    seconds, memory = map(statistics.median, zip(*found[1:], strict=True))
    return [f"{seconds:.2f}", f"{memory:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"python {sys.version.split()[0]}, {sys.platform}")
    with tempfile.TemporaryDirectory() as folder:
        library, mib = installed(Path(folder) / "library", ".")
        _, more = installed(Path(folder) / "laboratory", ".[lab]")
        rows = [["pip install .", f"{mib:.0f}"], ["pip install '.[lab]'", f"{more:.0f}"]]
        print(table(["installed", "MiB"], rows))
        rows = [[code, *cost(library, code, options.rounds)] for code in IMPORTS]
        print(table(["a fresh process", "seconds", "MiB"], rows))


if __name__ == "__main__":
    main()
