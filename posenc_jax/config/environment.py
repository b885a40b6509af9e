"""Apply wandb's environment variables, which rank below the command line and sweeps."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from posenc_jax.config.schema import Wandb
from posenc_jax.runtime.files import expanded

VARIABLES = {  # by field of config.wandb
    "mode": "WANDB_MODE",
    "project": "WANDB_PROJECT",
    "group": "WANDB_RUN_GROUP",
    "name": "WANDB_NAME",
    "job": "WANDB_JOB_TYPE",
    "dir": "WANDB_DIR",
}
MODES = {"dryrun": "offline", "run": "online"}  # older names


def apply(recipe: ConfigDict, argv: Sequence[str] = ()) -> None:
    """The environment overrides the recipe; a command line or a sweep overrides the environment."""
    wandb: Any = recipe.wandb
    for field, value in _fields().items():
        given = any(word.partition("=")[0] == f"--config.wandb.{field}" for word in argv)
        if not given and field in wandb:
            wandb[field] = value


def applied(wandb: Wandb) -> Wandb:
    return dataclasses.replace(wandb, **_fields())


def _fields() -> dict[str, str]:
    values = {field: os.environ.get(variable, "") for field, variable in VARIABLES.items()}
    return {field: MODES.get(value, value) for field, value in values.items() if value}


def trial() -> str:
    """Id of this run if the agent of a wandb sweep started it, else empty."""
    return os.environ.get("WANDB_RUN_ID", "") if os.environ.get("WANDB_SWEEP_ID") else ""


def workdir_of(workdir: str) -> str:
    """Folder of a run; each trial of a wandb sweep gets a subfolder."""
    return str(expanded(workdir) / trial())
