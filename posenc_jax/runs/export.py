"""Write the weights of a run as safetensors, with the names of its Orbax checkpoints."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from posenc_jax.config import schema
from posenc_jax.config.resolve import FORMAT
from posenc_jax.runs.checkpoints import PARAMETERS, saved_digest, total_digest
from posenc_jax.runs.subject import load
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import NO_FILE, is_replaceable, write_atomically
from posenc_jax.runtime.trees import by_path


@dataclasses.dataclass(frozen=True)
class Weights:
    """The trained arrays of a checkpoint by name, and facts for the file's metadata."""

    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, str]


def export(
    workdir: Path, path: Path, *, step: int | None = None, overwrite: bool = False
) -> Weights:
    """Write the weights of a run's checkpoint, the last or a given one, and return them."""
    check_writable(path, overwrite)
    loaded = load(workdir, step)
    state = {PARAMETERS: loaded.parts.params()}
    config = schema.as_fields(loaded.config) | {"format": FORMAT}
    facts = {
        "config": json.dumps(config, sort_keys=True),
        "step": str(loaded.step),
        "digest": saved_digest(loaded.card),  # as in status.json
        "weights_digest": total_digest(state),  # of the file's arrays
    }
    exported = Weights({n: np.asarray(leaf) for n, leaf in by_path(state).items()}, facts)
    write(path, exported)
    return exported


def write(path: Path, exported: Weights) -> None:
    # safetensors copies the memory of an array and ignores its strides.
    arrays = {name: np.asarray(array, order="C") for name, array in exported.arrays.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(arrays, dict(exported.facts)))


def check_writable(path: Path, overwrite: bool) -> None:
    if not is_replaceable(path):
        raise ConfigError(f"cannot write {path}: {NO_FILE}")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} already exists; --overwrite replaces it")
