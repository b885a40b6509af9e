"""What wandb's own variables say, where neither the command line nor a sweep says it."""

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
MODES = {"dryrun": "offline", "run": "online"}  # older words for them


def apply(config, argv: Sequence[str] = ()) -> None:
    """Command line and sweep over environment over recipe."""
    for field, variable in VARIABLES.items():
        value = os.environ.get(variable, "")
        said = any(word.partition("=")[0] == f"--config.wandb.{field}" for word in argv)
        if value and not said and field in config.wandb:
            config.wandb[field] = MODES.get(value, value)


def trial() -> str:
    """The id of this run, where wandb's agent started it for a sweep of its own."""
    return os.environ.get("WANDB_RUN_ID", "") if os.environ.get("WANDB_SWEEP_ID") else ""


def workdir_of(workdir: str) -> str:
    """Every trial of a sweep has the same command, and needs a folder of its own."""
    return str(Path(workdir) / trial()) if trial() else workdir
