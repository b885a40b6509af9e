"""Guards against a CPU backend that computes wrong sums without a word.

jaxlib 0.10.2 on CPU fuses a vmapped product and a sum into a kernel that is wrong (jax issue
39103). Importing the package changes nothing; programs call `configure()` first, before jax runs
anything.
"""

import os
from importlib.metadata import version

# An unknown XLA flag aborts the process, so each is given to the versions it was tried on.
_FLAGS = {"0.10.2": "--xla_cpu_experimental_ynn_fusion_type=-reduce"}


def configure(jaxlib_version: str | None = None) -> None:
    """Adds what this jaxlib needs to XLA_FLAGS; a user's own setting of the same flag stays.

    Works until the first array is made: XLA reads the variable once, when a backend starts.
    """
    flag = _FLAGS.get(jaxlib_version or version("jaxlib"))
    flags = os.environ.get("XLA_FLAGS", "")
    if flag is None or flag.partition("=")[0] in flags:
        return
    os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


def self_test() -> None:
    """Raises unless this process's backend sums right."""
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
