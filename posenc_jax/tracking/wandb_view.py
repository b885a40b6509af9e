"""wandb as a view of a run: what it shows is in the workdir, and it may fail at any call."""

import netrc
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from posenc_jax.exits import Stop
from posenc_jax.training.run import write_atomically


class View:
    """Logs to wandb until the first failure, which is said once."""

    def __init__(self, config, workdir: Path):
        self.required = config.wandb.required
        self.run: Any = None
        if config.wandb.mode != "disabled":
            self.run = self._try(lambda: _start(config, workdir))

    def log(self, record: Mapping) -> None:
        """A line of metrics.jsonl, as train/<name> against train/step."""
        if self.run is not None:
            self._try(lambda: self.run.log({f"train/{name}": v for name, v in record.items()}))

    def finish(self, code: int, summary: Mapping) -> None:
        if self.run is not None:
            run, self.run = self.run, None
            self._try(lambda: (run.summary.update(dict(summary)), run.finish(exit_code=code)))

    def _try(self, call: Callable):
        try:
            return call()
        except Exception as error:  # anything: a missing key, a dead service, a full disk
            self.run = None
            if self.required:
                raise Stop(f"wandb failed and wandb.required is set: {error}") from error
            print(
                f"wandb failed and is off from here; metrics.jsonl goes on: {error}",
                file=sys.stderr,
            )
            return None


def mode(asked: str) -> Any:  # of wandb's own literals
    return asked if asked != "auto" else ("online" if _has_key() else "offline")


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("//")[-1].split("/")[0]
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _start(config, workdir: Path):
    import wandb

    run = wandb.init(
        project=config.wandb.project,
        group=config.wandb.group or f"{config.data.source}-L{config.train_length}",
        name=f"{config.encoding.name}-{config.seed}",
        id=_identity(workdir / "wandb_id"),
        resume="allow",
        mode=mode(config.wandb.mode),
        dir=str(workdir),
        config=config.to_dict(),
        settings=wandb.Settings(init_timeout=30, silent=True, console="off"),
    )
    run.define_metric("train/step")
    run.define_metric("train/*", step_metric="train/step")
    return run


def _identity(path: Path) -> str:
    """One id for the run's whole life, so that going on later is the same run there."""
    if not path.exists():
        write_atomically(path, uuid.uuid4().hex[:12])
    return path.read_text().strip()
