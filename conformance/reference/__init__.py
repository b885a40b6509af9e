"""Every subject's definition in float64, written from the papers with NumPy alone.

A public function of these files is a subject. It returns an array, or its outputs by name, with NaN
where nothing is compared, as above the diagonal of a causal table.
"""

from collections.abc import Callable
from importlib import import_module

FILES = (
    "frequencies", "shipped", "rotation", "bias", "distances", "scales", "content", "attention"
)  # fmt: skip


def subjects() -> dict[str, Callable]:
    modules = [import_module(f"{__name__}.{file}") for file in FILES]
    return {
        name: function
        for module in modules
        for name, function in vars(module).items()
        if not name.startswith("_") and getattr(function, "__module__", "") == module.__name__
    }


def __getattr__(name: str) -> Callable:
    try:
        return subjects()[name]
    except KeyError:
        raise AttributeError(f"no subject is named {name!r}") from None
