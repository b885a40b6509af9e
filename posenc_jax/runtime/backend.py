"""Set up a process before jax is imported: retain memory and cache compiled programs.

By default glibc returns temporary memory to the system after each call of a compiled program, so a
training step on CPU spends a third of its time on page faults. Compiled programs are cached on
disk, so that a second start does not compile again. Importing the package changes nothing; programs
call `configure()` first.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

# Settings of glibc's mallopt: no separate mappings, retain freed memory, a single arena.
_KEEPING = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_ARENA_MAX": (-8, 1)}
DAYS = 30  # that a compiled program is kept on disk


def configure(*, keep_programs: bool = True) -> None:
    """Retain memory and cache compiled programs; call before jax is imported.

    User settings take precedence.
    """
    _keep_memory()
    if not sys.stderr.isatty():  # bars of other packages, which would fill a log
        os.environ.setdefault("TQDM_DISABLE", "1")
    if keep_programs:
        _keep_programs()


def _keep_memory() -> None:
    is_set = any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ)
    if is_set or not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, value in _KEEPING.values():
        if mallopt is not None:  # other C libraries lack it
            mallopt(parameter, value)


def cache_home() -> Path:
    """Return the folder for caches; a relative XDG_CACHE_HOME is ignored, as specified."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"))


def _keep_programs() -> None:
    """Set jax's cache variables, unless JAX_COMPILATION_CACHE_DIR is set already.

    A CPU program is compiled for one processor model, so each model has its own folder.
    """
    # jaxlib 0.10.1 logs an error for each cached program on AMD processors: it was compiled with
    # preferences of LLVM that are not processor features. 1 is no user's: jax sets it, also for the
    # programs that its process starts, such as the jobs of a sweep.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    base = cache_home()
    if not base.is_absolute():  # no home folder
        return
    build = f"jaxlib-{version('jaxlib')}-{_processor()}"
    folder = base / "posenc-jax" / "programs" / build
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # an unwritable home: programs are compiled again
        return
    if not os.access(folder, os.W_OK):
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    _forget_old(folder)


def _forget_old(folder: Path) -> None:
    oldest = time.time() - DAYS * 86_400
    for file in folder.iterdir():
        with contextlib.suppress(OSError):  # another process deletes it, or a folder of XLA
            if file.stat().st_mtime < oldest:
                file.unlink()


def _processor() -> str:
    """Hash this CPU's model and features."""
    lines = _cpu_lines("model name", "flags", "Features", "CPU part")
    text = "\n".join([platform.machine(), *lines])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _cpu_lines(*names: str) -> list[str]:
    """Return distinct lines of /proc/cpuinfo with these names; without it, the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [platform.processor()]
    return sorted({line for line in lines if line.startswith(names)}) or sorted(set(lines))


def machine() -> dict[str, str]:
    """Describe the hardware and jaxlib, on which the last bits of results depend."""
    return {"processor": _device(), "jaxlib": version("jaxlib")}


def cores() -> int:
    """Return the number of cores XLA uses on CPU, on which the last bits of sums depend."""
    visible = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return int(os.environ.get("NPROC") or len(visible))


def _device() -> str:
    """Name the device, such as `NVIDIA H200`, or a CPU's name, family/model and feature hash."""
    import jax

    if jax.default_backend() != "cpu":
        return jax.devices()[0].device_kind
    values = {
        line.partition(":")[0].strip(): line.partition(":")[2].strip()
        for line in _cpu_lines("model name", "cpu family", "model\t")
    }
    name = values.get("model name") or platform.machine()
    numbers = "/".join(values[n] for n in ("cpu family", "model") if n in values)
    return " ".join(filter(None, [name, numbers, _processor()]))
