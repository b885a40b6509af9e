"""Set up a process before jax is imported: memory and compiled programs kept.

Every call of a compiled program asks the C library for temporary memory, which glibc takes from the
system and returns each time: a training step on CPU then spends a third of its time on first
touches of pages. Compiled programs are kept on disk, so that a second start does not compile again.
Importing the package changes nothing; programs call `configure()` first.
"""

import ctypes
import hashlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

# Settings of glibc's mallopt: no separate mappings, freed memory is kept, one arena for all.
_KEEPING = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_ARENA_MAX": (-8, 1)}


def configure(*, keep_programs: bool = True) -> None:
    """Keep memory and compiled programs, from before jax is imported. User settings win."""
    _keep_memory()
    if keep_programs:
        _keep_programs()


def _keep_memory() -> None:
    chosen = any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ)
    if chosen or not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, value in _KEEPING.values():
        if mallopt is not None:  # other C libraries lack it or have a stub
            mallopt(parameter, value)


def cache_home() -> Path:
    """The folder for caches; a relative XDG_CACHE_HOME is ignored, as its specification says."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"))


def _keep_programs() -> None:
    """Set jax's own variables, unless JAX_COMPILATION_CACHE_DIR is set already.

    A CPU program is compiled for one kind of processor, so each kind has a folder of its own.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    base = cache_home()
    if not base.is_absolute():  # no home folder
        return
    here = f"jaxlib-{version('jaxlib')}-{_processor()}"
    folder = base / "posenc-jax" / "programs" / here
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # an unwritable home: everything works and is compiled again
        return
    if not os.access(folder, os.W_OK):
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(2**30))  # the oldest go first
    # jaxlib 0.10.1 logs each kept program of an AMD processor as an error: it was compiled with
    # preferences of LLVM that are no features of a processor.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _processor() -> str:
    """A hash of this CPU's model and features."""
    lines = _cpu_lines("model name", "flags", "Features", "CPU part")
    text = "\n".join([platform.machine(), *lines])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _cpu_lines(*names: str) -> list[str]:
    """The lines of /proc/cpuinfo with these names, each once; the processor's name elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [platform.processor()]
    return sorted({line for line in lines if line.startswith(names)}) or sorted(set(lines))


def machine() -> dict[str, str]:
    """What decides the last bits of a number: the same weights give others elsewhere."""
    return {"processor": _device(), "jaxlib": version("jaxlib")}


def cores() -> int:
    """The cores that XLA shares the sums of a CPU among: another number gives other last bits."""
    visible = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return int(os.environ.get("NPROC") or len(visible))


def _device() -> str:
    """The kind of the device that computes: `NVIDIA H200`; for a CPU its name, family/model and a
    hash of its features."""
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


def unusual_settings() -> list[str]:
    """Settings of jax, other than its defaults, under which a seed gives other numbers."""
    import jax

    usual = {"jax_enable_x64": False, "jax_threefry_partitionable": True}
    now = {name: getattr(jax.config, name) for name in usual}
    return [f"{name.upper()}={now[name]}" for name in usual if now[name] != usual[name]]
