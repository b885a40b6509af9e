"""A finished or running run, read back."""

from contextlib import closing
from pathlib import Path

import jax

from posenc_jax.configuration import Config
from posenc_jax.data import tokenizer
from posenc_jax.exits import Stop
from posenc_jax.training import optimizer as optimizers
from posenc_jax.training import parts as making
from posenc_jax.training import step as steps
from posenc_jax.training.checkpoints import Checkpoints
from posenc_jax.training.run import Workdir

TRIES = 20  # of reading a run that saves, and removes what it saved, at the same time


def load_run(workdir, step: int | None = None):
    """(model, encoding, config, tokenizer) of a run, at its last or a given checkpoint."""
    parts, config = load_parts(Path(workdir), step)
    return parts.model, parts.encoding, config, tokenizer.load(config.data.tokenizer)


def run_config(workdir: Path) -> Config:
    config = Workdir(workdir).config()
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


def load_card(workdir: Path, step: int) -> dict:
    """What was saved beside the arrays of a checkpoint."""
    with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        return checkpoints.card(step)


def load_parts(workdir: Path, step: int | None) -> tuple[making.Parts, Config]:
    config = run_config(workdir)
    checkpoints = Checkpoints(workdir, read_only=True)
    try:
        saved = checkpoints.steps()
        if not saved:
            raise Stop(f"{workdir} holds no checkpoint yet")
        step = saved[-1] if step is None else step
        if step not in saved:
            raise Stop(f"{workdir} holds no checkpoint of step {step}; have: {saved}")
        parts = making.make(config)
        mesh = steps.make_mesh(jax.devices()[:1])
        like = jax.eval_shape(lambda: steps.fresh_state(parts, optimizers.make(config)))
        state = checkpoints.restore(step, like, steps.replicated(mesh))
    finally:
        checkpoints.close()
    return parts.replace(state["params"]), config
