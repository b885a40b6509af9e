"""A run read back: what evaluations, pictures, notebooks and scripts ask of it."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posenc_jax.configuration import Config, original_length
from posenc_jax.data import tokenizer
from posenc_jax.encoding import Encoding
from posenc_jax.errors import Damaged, Stop
from posenc_jax.runs import parameters, seen
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.workdir import Workdir, refuse_edited

TRIES = 20  # of reading a run that saves, and removes what it saved, at the same time


@dataclasses.dataclass(frozen=True)
class Subject:
    """A checkpoint, and what an evaluation has to know of its run."""

    name: str
    config: Config
    step: int
    parts: parameters.Parts
    plain: Encoding  # without the run's own extension
    workdir: Path = Path()
    card: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the checkpoint

    @property
    def original(self) -> int:
        """L of the formulas, which the encoding says; randomized's is beyond the trained length."""
        return self.plain.train_length

    @property
    def trained(self) -> int:
        """The longest length it was trained at."""
        return max(self.config.train_length, original_length(self.config))

    @property
    def extensible(self) -> bool:
        """A table that was resampled and then trained has no plain form to start others from."""
        return self.config.extension.name not in ("interpolate", "clamp")

    def trained_on(self, stopping: Sequence[str] = ()) -> np.ndarray:  # uint64, ascending
        """Digests of the documents that its weights have seen."""
        return seen.trained_on(self.workdir, self.card, stopping)


def load_run(workdir, step: int | None = None):
    """(model, encoding, config, tokenizer) of a run, at its last or a given checkpoint."""
    subject = load_subject(Path(workdir), step)
    config, parts = subject.config, subject.parts
    return parts.model, parts.encoding, config, tokenizer.load(config.data.tokenizer)


def load_subject(workdir: Path, step: int | None = None) -> Subject:
    """A run at its last or a given checkpoint.

    Of a run in training the last checkpoint can be gone for a newer one while it is read; all that
    takes time is done before it is chosen.
    """
    config = run_config(workdir)
    fresh = parameters.make(config)
    for _ in range(TRIES):
        chosen = saved_steps(workdir)[-1] if step is None else step
        try:
            with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
                saved = checkpoints.steps()
                if chosen not in saved:
                    if step is None:
                        continue
                    raise Stop(f"{workdir} holds no checkpoint of step {chosen}; have: {saved}")
                card = checkpoints.card(chosen)
                refuse_edited(card, config, workdir)
                params = jax.device_put(checkpoints.parameters(chosen, fresh.params()))
        except (FileNotFoundError, Damaged):
            if step is not None or (workdir / "checkpoints" / str(chosen)).exists():
                raise
        else:
            parts = fresh.replace(params)
            subject = Subject(
                workdir.resolve().name, config, chosen, parts, parts.encoding, workdir, card
            )
            if not subject.extensible:
                return subject
            plain = parameters.unextended(config, params)
            return dataclasses.replace(subject, plain=plain)
    raise Stop(f"the checkpoints of {workdir} change too fast to be read; give a step")


def run_config(workdir: Path) -> Config:
    """The configuration of a run, held against what its newest checkpoint was sealed with."""
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
