"""Set up a process before jax is imported: right sums, memory and compiled programs kept.

jaxlib 0.10.2 on CPU fuses a vmapped product and a sum into a wrong kernel (jax issue 39103). Every
call of a compiled program asks the C library for temporary memory, which glibc takes from the
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

# An unknown XLA flag aborts the process, so each is given to the versions it was tried on.
_FLAGS = {"0.10.2": "--xla_cpu_experimental_ynn_fusion_type=-reduce"}


# Settings of glibc's mallopt: no separate mappings, freed memory is kept, one arena for all.
_KEEPING = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_ARENA_MAX": (-8, 1)}


def configure(jaxlib_version: str | None = None, *, keep_programs: bool = True) -> None:
    """Add the flags this jaxlib needs to XLA_FLAGS; keep memory and programs. User settings win.

    XLA reads the flags once, when a backend starts, so they take effect until the first array is
    made; the other settings take effect until jax is imported.
    """
    _keep_memory()
    if keep_programs:
        _keep_programs()
    flag = _FLAGS.get(jaxlib_version or version("jaxlib"))
    flags = os.environ.get("XLA_FLAGS", "")
    if flag is None or flag.partition("=")[0] in flags:
        return
    os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


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


def _processor() -> str:
    """A hash of this CPU's model and features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [platform.processor()]
    kinds = ("model name", "flags", "Features", "CPU part")
    facts = sorted({line for line in lines if line.startswith(kinds)}) or lines
    text = "\n".join([platform.machine(), *facts])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def unusual_settings() -> list[str]:
    """Settings of jax, other than its defaults, under which a seed gives other numbers."""
    import jax

    usual = {"jax_enable_x64": False, "jax_threefry_partitionable": True}
    now = {name: getattr(jax.config, name) for name in usual}
    return [f"{name.upper()}={now[name]}" for name in usual if now[name] != usual[name]]


def self_test() -> None:
    """Raise unless this process's backend sums correctly."""
    import jax
    import jax.numpy as jnp

    last = 32_768
    rows = jnp.zeros((last + 1, 3), jnp.float32).at[:, 0].set(jnp.arange(last + 1.0))
    lengths = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))(rows)
    if lengths[last] != last**2:
        raise RuntimeError(
            f"this backend computes wrong sums: {lengths[last]:.0f} instead of {last**2} "
            f"(jaxlib {version('jaxlib')}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}). "
            "Call posenc_jax.backend.configure() before jax runs anything."
        )
