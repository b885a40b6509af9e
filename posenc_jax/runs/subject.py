"""A finished or running run, read back."""

from contextlib import closing
from pathlib import Path

import jax

from posenc_jax.configuration import Config
from posenc_jax.data import tokenizer
from posenc_jax.errors import Damaged, Stop
from posenc_jax.runs import parameters
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.workdir import Workdir, refuse_edited
from posenc_jax.training import optimizer as optimizers
from posenc_jax.training import step as steps

TRIES = 20  # of reading a run that saves, and removes what it saved, at the same time


def load_run(workdir, step: int | None = None):
    """(model, encoding, config, tokenizer) of a run, at its last or a given checkpoint."""
    parts, config = load_parts(Path(workdir), step)
    return parts.model, parts.encoding, config, tokenizer.load(config.data.tokenizer)


def run_config(workdir: Path) -> Config:
    config = Workdir(workdir).checked_config()
    if config is None:
        raise Stop(f"{workdir} is not the workdir of a run: it holds no config.json")
    return config


def saved_steps(workdir: Path) -> list[int]:
    """The checkpoints that a run holds now, at least one."""
    for _ in range(TRIES):
        try:
            with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
                saved = checkpoints.steps()
        except FileNotFoundError:  # the run took one away while they were listed
            continue
        if not saved:
            raise Stop(f"{workdir} holds no checkpoint yet")
        return saved
    raise Stop(f"the checkpoints of {workdir} change too fast to be read; save less often")


def load_parts(workdir: Path, step: int | None) -> tuple[parameters.Parts, Config]:
    _, parts, config, _ = load_checkpoint(workdir, step)
    return parts, config


def load_checkpoint(workdir: Path, step: int | None) -> tuple[int, parameters.Parts, Config, dict]:
    """A step, its model and encoding, the run's configuration, and the checkpoint's card.

    Of a run in training the last checkpoint can be gone for a newer one while it is read; all that
    takes time is done before it is chosen.
    """
    config = run_config(workdir)
    parts = parameters.make(config)
    like = jax.eval_shape(lambda: steps.fresh_state(parts, optimizers.make(config)))
    for _ in range(TRIES):
        at = saved_steps(workdir)[-1] if step is None else step
        try:
            with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
                saved = checkpoints.steps()
                if at not in saved:
                    if step is None:
                        continue
                    raise Stop(f"{workdir} holds no checkpoint of step {at}; have: {saved}")
                card = checkpoints.card(at)
                refuse_edited(card, config, workdir)
                state = checkpoints.restore(at, like)
            return at, parts.replace(jax.device_put(state["params"])), config, card
        except (FileNotFoundError, Damaged):
            if step is not None or (workdir / "checkpoints" / str(at)).exists():
                raise
    raise Stop(f"the checkpoints of {workdir} change too fast to be read; give a step")
