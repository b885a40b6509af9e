"""Where a pretrained model is read from: a folder of safetensors, a GGUF file, an id of the Hub."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.checks import may_be_of_hub
from posenc_jax.data import tokenizer
from posenc_jax.errors import ConfigError, DataError
from posenc_jax.pretrained import gguf_file
from posenc_jax.pretrained.record import Source, digest_of

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PATTERNS = ["*.json", "*.safetensors", "tokenizer*", "vocab*", "merges*"]


def read(source: str | Path) -> Source:
    place = Path(source).expanduser()
    if place.is_file() and place.suffix == ".gguf":
        return gguf_file.read(place)
    if place.is_dir():
        return _folder(place)
    if place.exists() or not may_be_of_hub(str(source)):
        raise ConfigError(
            "SOURCE must be a folder with config.json and *.safetensors, a .gguf file, or an id of "
            f"the Hugging Face Hub; got {str(source)!r}"
        )
    return _folder(_of_hub(str(source)))


def _of_hub(name: str) -> Path:
    try:
        import huggingface_hub

        return Path(huggingface_hub.snapshot_download(name, allow_patterns=PATTERNS))
    except Exception as error:  # many types, from the network to an invalid name
        reason = " ".join(str(error).split())
        raise DataError(
            f"there is no folder {name!r}, and no model of that name from the Hugging Face Hub: "
            f"{reason}"
        ) from error


def _folder(folder: Path) -> Source:
    config = read_json(folder / "config.json")
    files = _shards(folder)
    encoder = tokenizer.Learned(folder)
    hashed = [folder / "config.json", *files, *sorted(folder.glob("tokenizer*.json"))]
    return Source(config, _arrays(files), encoder, _prefix(folder, encoder), digest_of(hashed))


def read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _shards(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        names = sorted(set(read_json(folder / INDEX)["weight_map"].values()))
        paths = [folder / name for name in names]
    else:
        single = folder / SINGLE
        paths = [single] if single.exists() else sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in paths if not path.exists()]
    if missing or not paths:
        what = f"of its files {', '.join(missing)} are missing" if missing else "it has none"
        raise DataError(f"{folder}: weights are read from *.safetensors, and {what}")
    return paths


def _arrays(files: list[Path]) -> dict[str, Callable[[], np.ndarray]]:
    arrays: dict[str, Callable[[], np.ndarray]] = {}
    for path in files:
        for name in _opened(path, lambda opened: list(opened.keys())):
            if name in arrays:
                raise DataError(f"{path}: {name} is in another file too")
            arrays[name] = partial(_opened, path, lambda opened, name=name: opened.get_tensor(name))
    return arrays


def _opened(path: Path, use: Callable[[Any], Any]) -> Any:
    """Opened anew for each array: an open file keeps every page in memory that was read of it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            return use(opened)
    except (SafetensorError, OSError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _prefix(folder: Path, encoder: tokenizer.Learned) -> int | None:
    """`add_bos_token` decides, or what the tokenizer itself puts before a text."""
    path = folder / "tokenizer_config.json"
    stated = read_json(path) if path.exists() else {}
    if "add_bos_token" in stated:
        token = stated.get("bos_token")
        token = token["content"] if isinstance(token, Mapping) else token
        return encoder.tokenizer.token_to_id(token) if stated["add_bos_token"] and token else None
    plain, whole = (encoder.tokenizer.encode("a", add_special_tokens=a).ids for a in (False, True))
    return whole[0] if whole[:1] != plain[:1] else None
