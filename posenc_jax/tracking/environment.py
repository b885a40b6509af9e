"""Apply wandb's environment variables, which rank below the command line and sweeps."""

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
    """Set fields from the environment, which overrides the recipe but not the command line."""
    for field, variable in VARIABLES.items():
        value = os.environ.get(variable, "")
        on_command_line = any(word.partition("=")[0] == f"--config.wandb.{field}" for word in argv)
        if value and not on_command_line and field in config.wandb:
            config.wandb[field] = MODES.get(value, value)


def trial() -> str:
    """Id of this run if the agent of a wandb sweep started it, else empty."""
    return os.environ.get("WANDB_RUN_ID", "") if os.environ.get("WANDB_SWEEP_ID") else ""


def workdir_of(workdir: str) -> str:
    """Folder of a run; each trial of a wandb sweep gets a subfolder."""
    return str(Path(workdir) / trial()) if trial() else workdir
