"""Load a run, for evaluations, plots, notebooks and scripts."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax import extensions
from posenc_jax.config import Training
from posenc_jax.config.resolve import TOKENIZER, trained_length
from posenc_jax.data import prepared, tokenizer
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.encoding import Encoding
from posenc_jax.errors import Damaged, DataError, Stop
from posenc_jax.runs import parameters, seen
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.workdir import Workdir, refuse_edited

TRIES = 20  # attempts to read a run that saves and removes checkpoints


@dataclasses.dataclass(frozen=True)
class Subject:
    """A checkpoint and the facts about its run that an evaluation needs."""

    name: str
    config: Training
    step: int
    parts: parameters.Parts
    plain: Encoding  # without the run's extension
    workdir: Path = Path()
    card: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the checkpoint

    @property
    def original(self) -> int:
        """L in the formulas, from the encoding; for `randomized` it exceeds the trained length."""
        return self.plain.train_length

    @property
    def trained(self) -> int:
        """The longest length the run was trained at."""
        return trained_length(self.config)

    @property
    def extensible(self) -> bool:
        """True if another extension can replace its own; a resampled table cannot be restored."""
        named = extensions.named(self.config.extension.name)
        return not any(record.kind.name == "table" for record, _ in named)

    @property
    def tokenizer_file(self) -> str:
        """`bytes`, or the file of the tokenizer: that which the run keeps, or the named one."""
        kept = self.workdir / TOKENIZER
        if not kept.is_file():
            return prepared.file_of(self.config.data.source)
        if self.card.get("tokenizer") not in (None, tokenizer.load(str(kept)).hash):
            raise DataError(f"{kept} is not the tokenizer that the run was trained with; delete it")
        return str(kept)

    @property
    def encoder(self) -> prepared.Encoder | tokenizer.Unavailable:
        """The tokenizer, which may be unavailable for prepared tokens."""
        if (self.workdir / TOKENIZER).is_file():
            try:
                return tokenizer.load(self.tokenizer_file)
            except DataError:
                if not isinstance(self.config.data.source, Tokens):
                    raise
        return prepared.encoder_of(self.config.data.source)

    def trained_on(self, stopping: Sequence[str] = ()) -> np.ndarray:  # uint64, ascending
        """Digests of the documents that its weights were trained on."""
        return seen.trained_on(self.workdir, self.card, stopping)


class Run(NamedTuple):
    """A loaded run."""

    model: parameters.models.Transformer
    encoding: Encoding
    config: Training
    tokenizer: prepared.Encoder | tokenizer.Unavailable


def load_run(workdir, step: int | None = None) -> Run:
    """Load a run at its last or a given checkpoint."""
    subject = load_subject(Path(workdir), step)
    parts = subject.parts
    return Run(parts.model, parts.encoding, subject.config, subject.encoder)


def load_subject(workdir: Path, step: int | None = None) -> Subject:
    """Load a run with the facts for an evaluation, at its last or a given checkpoint.

    A run in training may replace its last checkpoint meanwhile, so everything slow comes before
    the choice of one.
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
                    raise Stop(f"{workdir} has no checkpoint of step {chosen}; have: {saved}")
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


def run_config(workdir: Path) -> Training:
    """The configuration of a run, checked against its newest checkpoint's card."""
    config = Workdir(workdir).checked_config()
    if config is None:
        raise Stop(f"{workdir} is not the workdir of a run: it has no config.json")
    return config


def saved_steps(workdir: Path) -> list[int]:
    """List the steps of a run's current checkpoints, at least one."""
    for _ in range(TRIES):
        try:
            with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
                saved = checkpoints.steps()
        except FileNotFoundError:  # the run removed one meanwhile
            continue
        if not saved:
            raise Stop(f"{workdir} has no checkpoint yet")
        return saved
    raise Stop(f"the checkpoints of {workdir} change too fast to be read; save less often")
