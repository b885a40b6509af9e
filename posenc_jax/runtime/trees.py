"""Arrays of a tree by their names, such as `blocks.attention.q.kernel`."""

from typing import Any

import jax


def by_path(tree: Any) -> dict[str, jax.Array]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves}


def with_leaves(tree: Any, new: dict[str, Any]) -> Any:
    """Replace the named leaves of a tree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [_name(path) for path, _ in leaves]
    unknown = set(new) - set(names)
    if unknown:
        raise ValueError(f"no such arrays: {sorted(unknown)}; have: {names}")
    merged = [new.get(name, leaf) for name, (_, leaf) in zip(names, leaves, strict=True)]
    return jax.tree.unflatten(structure, merged)


def _name(path) -> str:
    """Format a path like `blocks.attention.q.kernel`, without Flax's parameter wrapper."""
    words = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
    return ".".join(word for word in words if word != "value")
