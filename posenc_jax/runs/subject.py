"""Load a run, for evaluations, plots, notebooks and scripts."""

import dataclasses
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax import extensions
from posenc_jax.config import Training
from posenc_jax.config.resolve import TOKENIZER, trained_length
from posenc_jax.data import corpora, tokenizer
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.data.texts import OwnText
from posenc_jax.data.writing import Encoder
from posenc_jax.encoding import Encoding
from posenc_jax.runs import parameters
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.workdir import Workdir, read_trained_on, refuse_edited
from posenc_jax.runtime.errors import Damaged, DataError, Stop

TRIES = 20  # attempts to read a run that saves and removes checkpoints


@dataclasses.dataclass(frozen=True)
class Subject:
    """A checkpoint to evaluate, with the facts about its run that an evaluation needs."""

    name: str
    step: int
    seed: int
    parts: parameters.Parts  # model and encoding as trained
    plain: Encoding  # without the run's extension
    extensible: bool  # another extension can replace the run's own
    trained: int  # the longest length the run was trained at
    tokenizer: Encoder | tokenizer.Unavailable
    digests: np.ndarray  # uint64, ascending: of the documents it was trained on
    text: OwnText
    prefix: int | None = None  # data.prefix

    @property
    def original(self) -> int:
        """L in the formulas, from the encoding; for `randomized` it exceeds the trained length."""
        return self.plain.train_length


class Loaded(NamedTuple):
    """A checkpoint of a run, as read from its folder."""

    config: Training
    step: int
    parts: parameters.Parts
    card: Mapping[str, Any]

    @property
    def extensible(self) -> bool:
        """False if the run's own extension resampled a table, which cannot be restored."""
        named = extensions.named(self.config.extension.name)
        return not any(record.kind.name == "table" for record, _ in named)

    @property
    def plain(self) -> Encoding:
        """The encoding without the run's extension."""
        if not self.extensible:
            return self.parts.encoding
        return parameters.unextended(self.config, self.parts.params())


class Run(NamedTuple):
    """A loaded run."""

    model: parameters.models.Model
    encoding: Encoding
    config: Training
    tokenizer: Encoder | tokenizer.Unavailable


def load_run(workdir, step: int | None = None) -> Run:
    """Load a run at its last or a given checkpoint."""
    folder = Path(workdir)
    loaded = load(folder, step)
    encoder = _tokenizer(folder, loaded)
    return Run(loaded.parts.model, loaded.parts.encoding, loaded.config, encoder)


def load_subject(workdir: Path, step: int | None = None) -> Subject:
    """Load a run for an evaluation, at its last or a given checkpoint."""
    loaded = load(workdir, step)
    config, card = loaded.config, loaded.card
    return Subject(
        name=workdir.resolve().name,
        step=loaded.step,
        seed=config.seed,
        parts=loaded.parts,
        plain=loaded.plain,
        extensible=loaded.extensible,
        trained=trained_length(config),
        tokenizer=_tokenizer(workdir, loaded),
        digests=read_trained_on(workdir, card),
        text=OwnText(config.data.source, config.seed, card["data"], card.get("text")),
        prefix=config.data.prefix,
    )


def load(workdir: Path, step: int | None = None) -> Loaded:
    """Load the last or a given checkpoint of a run.

    A run in training may replace its last checkpoint meanwhile, so everything slow comes before
    the choice of one.
    """
    config = parameters.readable(run_config(workdir))
    blank = parameters.blank(config)
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
                params = parameters.on_device(checkpoints.parameters(chosen, blank.params()))
        except (FileNotFoundError, Damaged):
            if step is not None or (workdir / "checkpoints" / str(chosen)).exists():
                raise
        else:
            return Loaded(config, chosen, blank.replace(params), card)
    raise Stop(f"the checkpoints of {workdir} change too fast to be read; give a step")


def _tokenizer(workdir: Path, loaded: Loaded) -> Encoder | tokenizer.Unavailable:
    """The tokenizer that the run keeps in its folder; prepared tokens may have none."""
    source, kept = loaded.config.data.source, workdir / TOKENIZER
    if kept.is_file():
        try:
            encoder = tokenizer.load(str(kept))
        except DataError:
            if not isinstance(source, Tokens):
                raise
        else:
            if encoder.hash != loaded.card["tokenizer"]:
                raise DataError(
                    f"{kept} is not the tokenizer that the run was trained with; delete it"
                )
            return encoder
    return corpora.encoder_of(source)


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
