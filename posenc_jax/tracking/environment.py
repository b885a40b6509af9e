"""Apply wandb's own environment variables beneath the command line and sweeps."""

import os
from collections.abc import Sequence
from pathlib import Path

VARIABLES = {  # by field of config.wandb
    "mode": "WANDB_MODE",
    "project": "WANDB_PROJECT",
    "group": "WANDB_RUN_GROUP",
    "name": "WANDB_NAME",
    "dir": "WANDB_DIR",
}
MODES = {"dryrun": "offline", "run": "online"}  # older names


def apply(config, argv: Sequence[str] = ()) -> None:
    """Set fields from the environment: it wins over the recipe, command line and sweep over it."""
    for field, variable in VARIABLES.items():
        value = os.environ.get(variable, "")
        given = any(word.partition("=")[0] == f"--config.wandb.{field}" for word in argv)
        if value and not given and field in config.wandb:
            config.wandb[field] = MODES.get(value, value)


def trial() -> str:
    """The id of this run where the agent of a wandb sweep started it, else empty."""
    return os.environ.get("WANDB_RUN_ID", "") if os.environ.get("WANDB_SWEEP_ID") else ""


def workdir_of(workdir: str) -> str:
    """The folder of a run; each trial of a wandb sweep gets its own, under the same command."""
    return str(Path(workdir) / trial()) if trial() else workdir
