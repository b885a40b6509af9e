"""Write the weights of a run as safetensors, under the names that plain Orbax shows."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from posenc_jax.config import schema
from posenc_jax.config.resolve import FORMAT
from posenc_jax.errors import ConfigError
from posenc_jax.files import NO_FILE, is_replaceable, write_atomically
from posenc_jax.runs.checkpoints import PARAMETERS, saved_digest, total_digest
from posenc_jax.runs.parameters import by_path
from posenc_jax.runs.subject import Subject, load_subject


@dataclasses.dataclass(frozen=True)
class Weights:
    """The trained arrays of a checkpoint by name, and the facts that stand beside them."""

    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, str]


def export(
    workdir: Path, path: Path, *, step: int | None = None, overwrite: bool = False
) -> Weights:
    """Write the weights of a run's last or given checkpoint to a file, and return them."""
    if not is_replaceable(path):
        raise ConfigError(f"cannot write {path}: {NO_FILE}")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} is there already; --overwrite replaces it")
    found = weights(load_subject(workdir, step))
    write(path, found)
    return found


def weights(subject: Subject) -> Weights:
    state = {PARAMETERS: subject.parts.params()}
    config = schema.as_fields(subject.config) | {"format": FORMAT}
    facts = {
        "config": json.dumps(config, sort_keys=True),
        "step": str(subject.step),
        "digest": saved_digest(subject.card),  # that of status.json
        "weights_digest": total_digest(state),  # of what stands in the file
    }
    return Weights({name: np.asarray(leaf) for name, leaf in by_path(state).items()}, facts)


def write(path: Path, found: Weights) -> None:
    # safetensors copies the bytes as they lie in memory, whatever the strides.
    rows = {name: np.asarray(array, order="C") for name, array in found.arrays.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(rows, dict(found.facts)))
