"""Low-rank parts in PEFT's layout: adapter_config.json and adapter_model.safetensors."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from posenc_jax.config import Training, trained
from posenc_jax.config.resolve import TOKENIZER
from posenc_jax.pretrained import families
from posenc_jax.pretrained.adopt import write_run
from posenc_jax.pretrained.families import FAMILIES, JOINS, Family, Row
from posenc_jax.pretrained.saving import lineage_of, write_tensors
from posenc_jax.runs.subject import base_of, load, newest_card, run_config
from posenc_jax.runs.workdir import Workdir, read_trained_on
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.runtime.files import read_json, write_atomically
from posenc_jax.runtime.trees import by_path

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
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
}

Arrays = dict[str, np.ndarray]


def save_adapter(workdir: Path, folder: Path, step: int | None = None) -> str:
    """Write the low-rank parts of a run in a new folder; return the family of the base."""
    loaded = load(workdir, step)
    config, params = loaded.config, loaded.parts.params()
    own = trained.chosen(params, trained.pattern_of(config))
    others = [name for name in own["model"] if ".lora_" not in name] + list(own["encoding"])
    if config.model.lora is None or others:
        raise ConfigError(
            f"PEFT's layout holds low-rank parts alone (model.lora), and {workdir} trained "
            f"{', '.join(others[:3])}; --layout=auto writes the whole model"
        )
    family, rank = _family_of(workdir), config.model.lora
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    ours, tensors, parts = by_path(loaded.parts.model), {}, {}
    for name, row, layer in _maps(family, config.model.layers):
        modules = [
            path.removeprefix("model.").removesuffix("kernel") for path in row.paths("weight")
        ]
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
        "base_model_name_or_path": _source_of(workdir),
        "target_modules": sorted(parts),
        "r": rank,
        "lora_alpha": FACTOR * rank,
        "rank_pattern": packed,
        "alpha_pattern": {module: FACTOR * size for module, size in packed.items()},
        "fan_in_fan_out": any(row.columns for row in family.names.values()),
        "bias": "none",
    }
    write_atomically(folder / CONFIG, json.dumps(stated, indent=2))
    return next(name for name, one in FAMILIES.items() if one is family)


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
    settings = read_json(source / CONFIG)
    for key, allowed in ONLY.items():
        if settings.get(key, allowed[0]) not in allowed:
            raise DataError(f"{source / CONFIG}: {key} = {settings[key]!r} has no form here")
    config, family = run_config(base), _family_of(base)
    arrays = _read(source / WEIGHTS)
    rank = max(array.shape[0] for name, array in arrays.items() if ".lora_A." in name)
    model = dataclasses.replace(config.model, lora=rank)
    config = dataclasses.replace(config, model=model, init_from=str(base.absolute()), trains="")
    own = _filled(arrays, settings, family, config)
    card, digests = newest_card(base), read_trained_on(base, newest_card(base))
    run.create()
    if (base / TOKENIZER).exists():
        write_atomically(run / TOKENIZER, (base / TOKENIZER).read_text(encoding="utf-8"))
    facts = {"rank": rank, "arrays": len(arrays), "base": base_of(base)}
    params = {"model": own, "encoding": load(base).parts.params()["encoding"]}
    write_run(run, config, params, card["tokenizer"], digests, base=facts["base"])
    return facts


def _read(path: Path) -> Arrays:
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}


def _filled(arrays: Arrays, settings: Mapping, family: Family, config: Training) -> Arrays:
    """Our low-rank parts; what an adapter lacks is 0."""
    from posenc_jax.runs import parameters

    shapes = parameters.unextended(config).params()["model"]
    own = {n: np.zeros(a.shape, np.float32) for n, a in shapes.items() if ".lora_" in n}
    maps = {name: (row, layer) for name, row, layer in _maps(family, config.model.layers)}
    heads, groups = config.model.heads, config.model.groups
    for name, array in arrays.items():
        stem = name.removeprefix(PREFIX).removeprefix(family.prefix)
        found = NAME.fullmatch(stem)
        if found is None or f"{found[1]}.weight" not in maps:
            raise DataError(f"{name}: no place for it in {config.init_from}")
        (row, layer), module = maps[f"{found[1]}.weight"], found[1]
        paths = [path.removeprefix("model.").removesuffix("kernel") for path in row.paths("weight")]
        for path, part in zip(paths, _split(array, found[2], row, heads, groups), strict=True):
            if found[2] == "A":
                own[f"{path}lora_down"][layer, :, : len(part)] = part.T
            else:
                factor = _factor(settings, module, part.shape[1]) / FACTOR
                own[f"{path}lora_up"][layer, : part.shape[1]] = factor * part.T
    return own


def _split(array: np.ndarray, kind: str, row: Row, heads: int, groups: int) -> list[np.ndarray]:
    return [array] * len(row.ours) if kind == "A" else row.split(array, heads, groups)


def _factor(settings: Mapping, module: str, rank: int) -> float:
    patterns = settings.get("alpha_pattern") or {}
    own = [alpha for key, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({key})", module)]
    alpha = own[0] if own else settings.get("lora_alpha", 8)
    return alpha / (rank**0.5 if settings.get("use_rslora") else rank)


def _maps(family: Family, layers: int) -> Iterator[tuple[str, Row, int]]:
    """The weights of a family's linear maps in layers: name, row and layer."""
    for name, (row, parameter, layer) in families.places(family.names, layers).items():
        if row.parameters[parameter] == "kernel" and row.ours[0].startswith("model.blocks."):
            yield name, row, layer


def _family_of(workdir: Path) -> Family:
    """The family from which a run, or one that it started from, was adopted."""
    for _, status in lineage_of(workdir):
        if "adopted" in status:
            return FAMILIES[status["adopted"]["model_type"]]
    raise ConfigError(f"{workdir} was not adopted, so PEFT has no names for its maps")


def _source_of(workdir: Path) -> str:
    found = [status["adopted"] for _, status in lineage_of(workdir) if "adopted" in status]
    return Path(str(found[0].get("source", ""))).name
