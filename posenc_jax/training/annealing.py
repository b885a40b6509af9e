"""Go on from a longer run of the same configuration, from before the rates of the two differ.

With `schedule=linear` a run has the same steps as any longer one until its last fifth. So one long
run, the trunk, and a last fifth at every budget give the models of all budgets.
"""

import shutil

from posenc_jax.config import Training
from posenc_jax.config.compare import FREE, PLACES, differences
from posenc_jax.runs.subject import run_config, saved_steps
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime.errors import ConfigError, OtherConfig, Stop
from posenc_jax.runtime.files import expanded
from posenc_jax.training.optimizer import constant_until, warmup_of


def begin(config: Training, run: Workdir) -> None:
    """Copy into a new run the checkpoint and metrics of the run in `anneal`."""
    place = expanded(config.anneal)
    trunk = run_config(place)
    lines = differences(trunk, config, (*FREE, *PLACES), (f"in {place}", "here"))
    if lines:
        raise OtherConfig(
            "anneal goes on from a run that differs in steps alone:\n  " + "\n  ".join(lines)
        )
    if warmup_of(trunk) != warmup_of(config):
        raise ConfigError(
            f"anneal: {place} warms up over {warmup_of(trunk)} steps and this run over "
            f"{warmup_of(config)}, at most a tenth of its steps; set warmup_steps to that in both"
        )
    last = min(constant_until(config), constant_until(trunk))
    saved = saved_steps(place)
    steps = [step for step in saved if step <= last]
    if not steps:
        raise Stop(
            f"anneal: {place} has no checkpoint of step {last} or before; have: {saved}. Train it "
            "with a save_every that divides that step, and keep as many"
        )
    checkpoints = run / "checkpoints"
    target = checkpoints / str(steps[-1])
    if not target.exists():  # by a start that was killed
        scratch = target.with_suffix(".orbax-checkpoint-tmp")
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(place / "checkpoints" / target.name, scratch)
        shutil.copyfile(place / "metrics.jsonl", run / "metrics.jsonl")
        scratch.rename(target)
