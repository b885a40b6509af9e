"""The packages beside this one, `models` and `configs`: ours, whatever else has their names."""

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent.parent


def models() -> ModuleType:
    """The decoder. Where `models` means another package, ours is loaded by where it lies."""
    return _ours("models", HERE / "models" / "__init__.py")


def config(name: str) -> ModuleType:
    """`base` or `eval`, the defaults of a run and of an evaluation."""
    return _ours(f"configs.{name}", HERE / "configs" / f"{name}.py")


def _ours(name: str, path: Path) -> ModuleType:
    found = _place(name)
    if found == path:
        return import_module(name)
    if not path.is_file():
        raise ImportError(
            f"posenc_jax needs its own {name}, which is to lie at {path}; {name!r} is "
            + (f"{found} here" if found else "nowhere else either")
        )
    own = f"posenc_jax_{name.replace('.', '_')}"
    if own not in sys.modules:
        spec = importlib.util.spec_from_file_location(own, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[own] = module
        spec.loader.exec_module(module)
    return sys.modules[own]


def _place(name: str) -> Path | None:
    """The file that Python would import, or has imported, by a name."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # whatever another package of that name does when it is imported
        return None
    return Path(spec.origin).resolve() if spec and spec.origin else None
