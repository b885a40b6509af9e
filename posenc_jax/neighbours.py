"""Import our packages `models` and `configs`, even if another package has one of these names."""

import importlib.util
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent.parent


def models() -> ModuleType:
    """Import our `models`, from its path if another package has that name."""
    return _ours("models", HERE / "models" / "__init__.py")


def recipe(name: str) -> ModuleType:
    """Import a file of configs/, with our own `configs.base`."""
    if all(_file_of(f"configs.{n}") == HERE / "configs" / f"{n}.py" for n in (name, "base")):
        return import_module(f"configs.{name}")
    with _own_configs():
        return import_module(f"configs.{name}")


def recipe_at(path: Path) -> ModuleType:
    """A recipe anywhere; `from configs import base` in it means ours."""
    if path.resolve().parent == HERE / "configs":
        return recipe(path.stem)
    recipe("base")
    return _loaded("posenc_jax_recipe", path)


@contextmanager
def _own_configs():
    """Replace `configs` by our package while recipes are imported."""
    theirs = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name == "configs" or name.startswith("configs.")
    }
    ours = ModuleType("configs")
    ours.__path__ = [str(HERE / "configs")]
    sys.modules["configs"] = ours
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n == "configs" or n.startswith("configs.")]:
            del sys.modules[name]
        sys.modules.update(theirs)


def _ours(name: str, path: Path) -> ModuleType:
    imported = _file_of(name)
    if imported == path:
        return import_module(name)
    if not path.is_file():
        raise ImportError(
            f"posenc_jax needs its own {name} at {path}, which is missing; {name!r} is "
            + (f"{imported} here" if imported else "not installed elsewhere either")
        )
    own = f"posenc_jax_{name.replace('.', '_')}"
    return sys.modules[own] if own in sys.modules else _loaded(own, path)


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _file_of(name: str) -> Path | None:
    """File of a module, imported or not; None if Python does not find it."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # another package of that name may raise anything on import
        return None
    return Path(spec.origin).resolve() if spec and spec.origin else None
