"""Low-rank parts in PEFT's layout: adapter_config.json and adapter_model.safetensors."""

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import safe_open

from posenc_jax.config import Training, trained
from posenc_jax.config.resolve import TOKENIZER
from posenc_jax.pretrained import families
from posenc_jax.pretrained.adopt import ADAPTER, write_run
from posenc_jax.pretrained.families import FAMILIES, JOINS, Family, Row
from posenc_jax.pretrained.saving import lineage_of, write_tensors
from posenc_jax.runs.subject import load, newest_card, run_config, weights_of
from posenc_jax.runs.workdir import Workdir, read_trained_on
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.runtime.files import read_json, write_atomically
from posenc_jax.runtime.trees import by_path

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # of the names of arrays
FACTOR = 2.0  # of ours; theirs is alpha / r
NAME = re.compile(r"(.+)\.lora_([AB])\.weight")
# Options of PEFT that change what the arrays mean.
ONLY: Mapping[str, tuple] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, []),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),  # base as it was
}

Arrays = dict[str, np.ndarray]


def save_adapter(workdir: Path, folder: Path, step: int | None = None) -> str:
    """Write the low-rank parts of a run in a new folder; return the family of the base."""
    loaded = load(workdir, step)
    config, ours = loaded.config, by_path(loaded.parts.model)
    own, _ = trained.split(loaded.parts.params(), config)
    others = [name for name in own["model"] if ".lora_" not in name] + list(own["encoding"])
    if config.model.lora is None or others:
        raise ConfigError(
            f"PEFT's layout holds low-rank parts alone (model.lora), and {workdir} trained "
            f"{', '.join(others[:3])}; --layout=auto writes the whole model"
        )
    adopted, rank = _adopted(workdir), config.model.lora
    between = itertools.takewhile(lambda one: "adopted" not in one[1], lineage_of(workdir))
    if any(trained.pattern_of(one) != trained.LORA for one, _ in between):
        raise ConfigError(
            f"{workdir} began with weights that were trained after {adopted['source']} was "
            "adopted; write those with --layout=auto, adopt them, and start from there"
        )
    family = FAMILIES[adopted["model_type"]]
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    tensors, parts = {}, {}
    for name, (row, layer, modules) in _maps(family, config.model.layers).items():
        downs, ups = (
            [np.asarray(ours[f"{module}lora_{one}"][layer]) for module in modules]
            for one in ("down", "up")
        )
        if any(up.any() for up in ups):
            stem = f"{PREFIX}{family.name(name)}".removesuffix("weight")
            tensors[f"{stem}lora_A.weight"] = lambda downs=downs: np.concatenate(downs, 1).T
            tensors[f"{stem}lora_B.weight"] = lambda ups=ups, row=row: _beside(ups, row, config)
            parts[name.split(".")[-2]] = len(modules)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / WEIGHTS, tensors)
    packed = {module: count * rank for module, count in parts.items() if count > 1}
    stated = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(adopted["source"]),
        "target_modules": sorted(parts),
        "r": rank,
        "lora_alpha": FACTOR * rank,
        "rank_pattern": packed,
        "alpha_pattern": {module: FACTOR * size for module, size in packed.items()},
        "fan_in_fan_out": any(row.columns for row in family.names.values()),
        "bias": "none",
    }
    write_atomically(folder / ADAPTER, json.dumps(stated, indent=2))
    return adopted["model_type"]


def _beside(ups: list[np.ndarray], row: Row, config: Training) -> np.ndarray:  # [out, parts * r]
    """Each part of a packed map reads its own rank."""
    rank, wide = len(ups[0]), len(ups[0]) * len(ups)
    placed = [np.zeros((up.shape[1], wide), up.dtype) for up in ups]
    for number, (whole, up) in enumerate(zip(placed, ups, strict=True)):
        whole[:, number * rank : (number + 1) * rank] = up.T
    return JOINS[row.split](placed, config.model.heads)


def adopt_adapter(source: Path, workdir: Path, base: Path) -> dict[str, Any]:
    """Write an adapter as a run on top of that of its base; return its facts."""
    run = Workdir(workdir)
    if run.config() is not None:
        raise ConfigError(f"{workdir} holds a run already; give another --workdir")
    if not (source / ADAPTER).exists():
        raise ConfigError(f"{source} holds no {ADAPTER}; --base goes with an adapter of PEFT")
    settings = read_json(source / ADAPTER)
    for key, allowed in ONLY.items():
        if settings.get(key, allowed[0]) not in allowed:
            raise DataError(f"{source / ADAPTER}: {key} = {settings[key]!r} has no form here")
    config, family = run_config(base), FAMILIES[_adopted(base)["model_type"]]
    if config.model.lora is not None:
        raise ConfigError(f"{base} has low-rank parts itself; give the run of the whole model")
    arrays = _read(source / WEIGHTS)
    rank = max(array.shape[0] for name, array in arrays.items() if ".lora_A." in name)
    model = dataclasses.replace(config.model, lora=rank)
    config = dataclasses.replace(config, model=model, init_from=str(base.absolute()), trains="")
    begun, digest = weights_of(config)
    own = _filled(arrays, settings, family, config, begun["model"])
    params: dict[str, Arrays] = jax.device_get(begun | {"model": own})
    card = newest_card(base)
    digests = read_trained_on(base, card)
    run.create()
    if (base / TOKENIZER).exists():
        write_atomically(run / TOKENIZER, (base / TOKENIZER).read_text(encoding="utf-8"))
    write_run(run, config, params, card["tokenizer"], digests, digest)
    return {"rank": rank, "arrays": len(arrays), "base": digest}


def _read(path: Path) -> Arrays:
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}


def _filled(
    arrays: Arrays, settings: Mapping, family: Family, config: Training, model: Mapping[str, Any]
) -> Arrays:
    """Our low-rank parts; what an adapter lacks is 0."""
    own = {n: np.zeros(a.shape, np.float32) for n, a in model.items() if ".lora_" in n}
    maps = _maps(family, config.model.layers)
    heads, groups = config.model.heads, config.model.groups
    for name, array in arrays.items():
        stem = name.removeprefix(PREFIX).removeprefix(family.prefix)
        found = NAME.fullmatch(stem)
        if found is None or f"{found[1]}.weight" not in maps:
            raise DataError(f"{name}: no place for it in {config.init_from}")
        row, layer, modules = maps[f"{found[1]}.weight"]
        if found[2] == "A":
            for module in modules:
                own[f"{module}lora_down"][layer, :, : len(array)] = array.T
            continue
        rank = array.shape[1]
        factor = _factor(settings, found[1], rank) / FACTOR
        for module, part in zip(modules, row.split(array, heads, groups), strict=True):
            own[f"{module}lora_up"][layer, :rank] = factor * part.T
    return own


def _factor(settings: Mapping, module: str, rank: int) -> float:
    patterns = settings.get("alpha_pattern") or {}
    own = [alpha for key, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({key})", module)]
    alpha = own[0] if own else settings.get("lora_alpha", 8)
    return alpha / (rank**0.5 if settings.get("use_rslora") else rank)


def _maps(family: Family, layers: int) -> dict[str, tuple[Row, int, list[str]]]:
    """The linear maps of a family's layers by the names of their weights: their row, their layer
    and ours, such as `blocks.attention.q.`."""
    return {
        name: (
            row,
            layer,
            [path.removeprefix("model.").removesuffix("kernel") for path in row.paths("weight")],
        )
        for name, (row, parameter, layer) in families.places(family.names, layers).items()
        if row.parameters[parameter] == "kernel" and row.ours[0].startswith("model.blocks.")
    }


def _adopted(workdir: Path) -> dict[str, Any]:
    """The facts of the model that a run, or one that it started from, was adopted from."""
    for _, status in lineage_of(workdir):
        if "adopted" in status:
            return status["adopted"]
    raise ConfigError(f"{workdir} was not adopted, so PEFT has no names for its maps")
