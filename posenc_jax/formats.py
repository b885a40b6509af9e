"""Upgrade older formats of `config.json` and of a checkpoint's card."""

from collections.abc import Mapping
from typing import Any

from posenc_jax.registry import FILES

FORMAT = 2


def upgraded(fields: Mapping[str, Any], written: Any) -> dict[str, Any]:
    """A run's configuration in today's format; `written` is its own, None in the first format."""
    if written in (None, 1):
        fields = _from_1(fields)
    elif written != FORMAT:
        raise ValueError(
            f"format {written!r} is not known here; this version reads 1 to {FORMAT}. Take the "
            "version of posenc-jax that wrote it"
        )
    return _with_later_fields(_set_alone(fields))


def _with_later_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Add the fields that older runs lack."""
    names = ("tokens", "mixture", "far", "variant", "gaps", "needles", "name", "revision")
    data: dict[str, Any] = dict.fromkeys((*names, "valid_split", "valid_path", "begins"))
    data["cut_one"] = _cut_one(fields["data"])
    data["hold_out"] = "document" if _reads_stdlib(fields["data"]) else None
    later = {
        "model": {"bos": False},
        "encoding": {"per_layer": False, "sink": False},
        "data": data | {"answers_only": False},
    }
    return dict(fields) | {group: more | dict(fields[group]) for group, more in later.items()}


def _cut_one(data: Mapping[str, Any]) -> bool | None:
    """Runs once held out whole documents alone, of whatever text."""
    sources = [word.partition(":")[0].strip() for word in (data.get("mixture") or "").split(",")]
    return False if {data.get("source"), *sources} & {*FILES, "hub"} else None


def _reads_stdlib(data: Mapping[str, Any]) -> bool:
    beside = data.get("tokens") or data.get("mixture")
    return data.get("source") == "stdlib" and not beside


def _set_alone(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop unset options: configurations once held those of every extension, as None."""
    extension = fields["extension"]
    if not isinstance(extension, Mapping):
        return dict(fields)
    kept = {name: value for name, value in extension.items() if value is not None}
    return dict(fields) | {"extension": kept}


def _from_1(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Upgrade format 1: T5's table was its bias, all arrays had one rate, and fields of `data` that
    nothing read held defaults."""
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
