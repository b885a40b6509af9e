"""What there is to choose from, read from the files themselves and without importing jax."""

import ast
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


def encodings() -> list[str]:
    return sorted(path.stem for path in (_HERE / "schemes").glob("[!_]*.py"))


def encoding_options(name: str) -> tuple[str, ...] | None:
    """The options of a scheme's `build`; None where it passes others on."""
    arguments = _build_of(name)
    return None if arguments.kwarg else tuple(arg.arg for arg in arguments.kwonlyargs)


def trains(name: str) -> bool:
    """Whether an encoding has trained fields, which are drawn from a key."""
    return "key" in [arg.arg for arg in _build_of(name).args]


@cache
def _build_of(name: str) -> ast.arguments:
    for node in ast.parse((_HERE / "schemes" / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == "build":
            return node.args
    raise ValueError(f"posenc_jax/schemes/{name}.py holds no function `build`")


@cache
def extensions() -> dict[str, str]:
    """Each extension with the encoding it is made for; '' for any."""
    tree = ast.parse((_HERE / "extensions.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXTENSIONS":
            assert isinstance(node.value, ast.Dict)
            made_for = {"Encoding": "", "RoPE": "rope", "Learned": "learned"}
            return {
                ast.literal_eval(key): made_for[value.args[1].elts[0].id]  # pyright: ignore
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key is not None
            }
    raise AssertionError("extensions.py assigns EXTENSIONS")
