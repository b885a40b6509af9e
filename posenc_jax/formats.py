"""The format of `config.json` and of a checkpoint's card, and what older ones meant."""

from collections.abc import Mapping
from typing import Any

FORMAT = 2


def upgraded(fields: Mapping[str, Any], written: Any) -> dict[str, Any]:
    """A run's configuration in today's words; `written` is its format, None in the first one."""
    if written in (None, 1):
        return _with_new_fields(_from_1(fields))
    if written != FORMAT:
        raise ValueError(
            f"format {written!r} is not known here; this version reads 1 to {FORMAT}. Take the "
            "version of posenc-jax that wrote it"
        )
    return _with_new_fields(fields)


def _with_new_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """With those that came later and change nothing."""
    encoding = {"per_layer": False} | dict(fields["encoding"])
    return dict(fields) | {"encoding": encoding}


def _from_1(fields: Mapping[str, Any]) -> dict[str, Any]:
    """T5's table was its bias, all arrays had one rate, and defaults stood in fields of `data`
    that nothing read."""
    read_by = {
        "field": ("jsonl", "hub"),
        "split": ("hub",),
        "task": ("synthetic",),
        "documents": ("synthetic",),
        "document_length": ("synthetic",),
    }
    data = {"choose_fraction": 0.0} | dict(fields["data"])
    for name, sources in read_by.items():
        if data.get("source") not in sources:
            data[name] = None
    encoding = dict(fields["encoding"])
    if "t5" in (encoding.get("name"), encoding.get("inner")):
        encoding["scale"] = 1.0
    return {"encoding_rate": 1.0} | dict(fields) | {"data": data, "encoding": encoding}
