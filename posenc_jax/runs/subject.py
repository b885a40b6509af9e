"""Load a run: for evaluations, plots, notebooks, scripts, and the runs that start from it."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax.config import Training, building, schema, trained
from posenc_jax.config.compare import without_wrappers
from posenc_jax.config.resolve import FORMAT, TOKENIZER, trained_length
from posenc_jax.data import corpora, tokenizer
from posenc_jax.data.corpora import Corpus, Mixture
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.data.texts import OwnText
from posenc_jax.data.tokenizer import Encoder
from posenc_jax.encoding import Encoding
from posenc_jax.runs import parameters
from posenc_jax.runs.checkpoints import (
    PARAMETERS,
    Checkpoints,
    digests,
    saved_digest,
    steps_of,
    total_digest,
)
from posenc_jax.runs.workdir import (
    Workdir,
    keep_trained_on,
    read_trained_on,
    refuse_edited,
    sealed,
)
from posenc_jax.runtime.errors import Damaged, DataError, OtherConfig, Stop
from posenc_jax.runtime.files import read_json, write_atomically
from posenc_jax.runtime.terminal import printable
from posenc_jax.runtime.trees import by_path, with_leaves

Placing = Callable[[parameters.Params], parameters.Params]
TRIES = 20  # attempts to read a run that saves and removes checkpoints


@dataclasses.dataclass(frozen=True)
class Subject:
    """A checkpoint to evaluate, with the facts about its run that an evaluation needs."""

    name: str
    step: int
    seed: int
    parts: parameters.Parts  # model and encoding as trained
    plain: Encoding  # without the run's extension, where it is extensible
    extensible: bool  # False if the run's own extension resampled a table
    trained: int  # the longest length the run was trained at
    tokenizer: Encoder | tokenizer.Unavailable
    digests: np.ndarray  # uint64, ascending: of the documents it was trained on
    text: OwnText
    prefix: int | None = None  # data.prefix

    @cached_property
    def digests_of_model(self) -> dict[str, str]:
        return digests(by_path(self.parts.model))

    @cached_property
    def weights(self) -> str:
        """A short digest of all arrays."""
        return total_digest(self.parts.params())[:16]

    @property
    def original(self) -> int:
        """L in the formulas, from the encoding; for `randomized` it exceeds the trained length."""
        return self.plain.train_length


class Loaded(NamedTuple):
    """A checkpoint of a run, as read from its folder."""

    config: Training
    step: int
    parts: parameters.Parts
    plain: Encoding  # without the run's extension, with its initial arrays
    card: Mapping[str, Any]


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


def load_subject(
    workdir: Path, step: int | None = None, place: Placing = parameters.on_device
) -> Subject:
    """Load a run for an evaluation, at its last or a given checkpoint."""
    return next(subjects_of(run_config(workdir), workdir, [step], place))


def subjects_of(
    config: Training,
    workdir: Path,
    steps: Sequence[int | None],
    place: Placing = parameters.on_device,
) -> Iterator[Subject]:
    """Load checkpoints of a run, the last one for None; what they share is read once."""
    extensible = not building.resamples(config)
    shared: dict[str, Any] = {}
    for step in steps:
        loaded = _load(config, workdir, step, place)
        plain = loaded.parts.encoding
        if extensible:
            trained = parameters.trained_arrays(plain)
            plain = with_leaves(loaded.plain, trained)
        shared = shared or {
            "name": printable(workdir.resolve().name),
            "seed": config.seed,
            "extensible": extensible,
            "trained": trained_length(config),
            "tokenizer": _tokenizer(workdir, loaded),
            "digests": read_trained_on(workdir, loaded.card),
            "text": OwnText(config.data.source, config.seed, loaded.card["data"]),
            "prefix": config.data.prefix,
        }
        subject = Subject(step=loaded.step, parts=loaded.parts, plain=plain, **shared)
        del loaded, plain  # one model at a time
        yield subject
        del subject


def load(workdir: Path, step: int | None = None) -> Loaded:
    """Load the last or a given checkpoint of a run."""
    return _load(run_config(workdir), workdir, step)


def _load(
    config: Training, workdir: Path, step: int | None, place: Placing = parameters.on_device
) -> Loaded:
    """A run in training may replace its last checkpoint meanwhile, so everything slow comes before
    the choice of one."""
    config = parameters.readable(config)
    try:
        plain = parameters.unextended(config)
        blank = parameters.extended(config, plain)
    except (ValueError, TypeError) as error:
        raise Stop(f"{workdir / 'config.json'} describes no model: {error}") from error
    own, frozen = jax.eval_shape(partial(trained.split, config=config), blank.params())
    for _ in range(TRIES):
        saved = saved_steps(workdir)
        chosen = saved[-1] if step is None else step
        if chosen not in saved:
            raise Stop(f"{workdir} has no checkpoint of step {chosen}; have: {saved}")
        try:
            with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
                card, state = checkpoints.restore(chosen, {PARAMETERS: own})
        except (FileNotFoundError, Damaged):
            if step is not None or (workdir / "checkpoints" / str(chosen)).exists():
                raise
        else:
            if frozen:
                _, frozen = trained.split(weights_of(config, card["base"], workdir)[0], config)
            params = trained.whole(state[PARAMETERS], frozen, config)
            del state, frozen  # each array is held once
            params = place(params)
            return Loaded(config, chosen, blank.replace(params), plain.encoding, card)
    raise Stop(f"the checkpoints of {workdir} change too fast to be read; give a step")


def check_tokenizer(init_from: str, tokenizer_hash: str) -> None:
    """Refuse to start from a run with another tokenizer."""
    if newest_card(Path(init_from))["tokenizer"] != tokenizer_hash:
        raise OtherConfig(
            f"init_from: {init_from} was not trained with the tokenizer of this run; give the one "
            "of that run"
        )


def newest_card(workdir: Path) -> dict[str, Any]:
    with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        return checkpoints.card(saved_steps(workdir)[-1])


def weights_of(
    config: Training, digest: str | None = None, workdir: Path | None = None
) -> tuple[parameters.Params, str]:
    """The weights of `init_from` on the host, with the run's own extension, and their digest. What
    is not trained keeps its type, and what the source lacks of LoRA comes from the seed. Those with
    a digest are searched for, beside the run in `workdir` too."""
    place, step = Path(config.init_from), None
    if digest is not None and workdir is not None:
        place, step = base_of(config, digest, workdir)
    source = _load(run_config(place), place, step, parameters.on_host)
    kept = config.extension == source.config.extension
    parts = parameters.blank(config) if kept else parameters.unextended(config)
    saved, fresh = source.parts.params(), parts.params()
    new = {n: a for n, a in fresh["model"].items() if fnmatchcase(n, trained.LORA)}
    saved["model"] = parameters.from_seed(config, new) | saved["model"] if new else saved["model"]
    _, frozen = jax.eval_shape(partial(trained.split, config=config), fresh)
    inside = _names_inside(config, source.config, saved["encoding"])
    saved["encoding"] = fresh["encoding"] | inside
    for group in fresh:
        for name, leaf in fresh[group].items():
            other = saved[group].get(name)
            if other is None or other.shape != leaf.shape:
                shape = "nothing" if other is None else other.shape
                raise OtherConfig(
                    f"init_from: {group} {name} is {leaf.shape} here and {shape} in "
                    f"{config.init_from}; use that run's model and encoding"
                )
            if group == "encoding" or name not in frozen:
                saved[group][name] = other.astype(leaf.dtype)  # of adopted weights in bfloat16
    # The extension comes last, since it may resample a table.
    parts = parts.replace(saved)
    return (parts if kept else parameters.extended(config, parts)).params(), digest_of(source.card)


def _names_inside(config: Training, source: Training, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a source's encoding by their names in one around it; a sink stays outside."""
    _, depth = without_wrappers(config.encoding, source.encoding)
    outer = "inner." if source.encoding.sink else ""
    return {
        outer + depth * "inner." + name.removeprefix(outer) if name.startswith(outer) else name: one
        for name, one in arrays.items()
    }


def refuse_another_base(card: Mapping[str, Any], config: Training, workdir: Path) -> None:
    """Refuse a run in `init_from` that is not there, or not the one that this run began with."""
    params = parameters.unextended(config).params()
    _, frozen = jax.eval_shape(partial(trained.split, config=config), params)
    if frozen or (config.init_from != sealed(card).init_from and "base" in card):
        base_of(config, card["base"], workdir)


def base_of(config: Training, digest: str, workdir: Path) -> tuple[Path, int]:
    """The folder and step of the weights that a run began with: in `init_from`, or in a run of
    that name beside it."""
    source, beside = places = places_of_base(config, workdir)
    for place in dict.fromkeys(places):
        for step in reversed(steps_of(place)):
            with suppress(Damaged), closing(Checkpoints(place, read_only=True)) as checkpoints:
                if digest_of(checkpoints.card(step)) == digest:
                    return place, step
    what = "has no checkpoint of it" if steps_of(source) else "is not there"
    raise OtherConfig(
        f"{workdir} began with the weights of digest {digest}, and {source} {what}. Put that run "
        f"at {beside}, or name its place: init_from in {workdir / 'config.json'}, or "
        "--config.init_from=RUN of train.py"
    )


def places_of_base(config: Training, workdir: Path) -> tuple[Path, Path]:
    """Where the run may be that another began with: as it was named, and beside that one."""
    source = Path(config.init_from)
    return source, workdir.resolve().parent / source.name


def types_of(workdir: Path) -> dict[str, np.dtype]:
    """The types in which a run's newest checkpoint, and its base, hold the arrays of its model;
    none where they are not there."""
    if not (steps := steps_of(workdir)):
        return {}
    base, place = run_config(workdir).init_from, f"{PARAMETERS}.model."
    with closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        types = checkpoints.types(steps[-1])
    own = {n.removeprefix(place): kind for n, kind in types.items() if n.startswith(place)}
    return types_of(Path(base)) | own if base else own


def digest_of(card: Mapping[str, Any]) -> str:
    """The digest of a checkpoint's trained weights."""
    arrays = card["digests"].items()
    return saved_digest({"digests": {n: d for n, d in arrays if n.startswith(f"{PARAMETERS}.")}})


def keep_beside(
    workdir: Path,
    config: Training,
    corpus: Corpus | Mixture,
    card: Mapping[str, Any] | None,
    base: str | None,
) -> dict[str, Any]:
    """Keep the tokenizer and the list of training documents in a run's folder; return what the
    cards of its checkpoints say of the run. `card` is that of the checkpoint to resume from, and
    `base` the digest of the weights that the run began with."""
    encoder = corpus.encoder
    if isinstance(encoder, tokenizer.Learned):
        write_atomically(workdir / TOKENIZER, encoder.tokenizer.to_str())
    return ({} if base is None else {"base": base}) | {
        "data": corpus.fingerprint,
        "tokenizer": encoder.hash,
        "config": schema.as_fields(config),
        "format": FORMAT,
        "trained_on": _keep_trained_on(workdir, config.init_from, corpus, card),
    }


def _keep_trained_on(
    workdir: Path, init_from: str, corpus: Corpus | Mixture, card: Mapping[str, Any] | None
) -> str:
    """Keep the digests of a run's own documents and of those of the run whose weights it took;
    return their hash."""
    if card is not None:
        with suppress(DataError):  # a list that is missing or was changed is written again
            read_trained_on(workdir, card)
            return card["trained_on"]
    digests = np.unique(corpus.digests)
    if init_from:
        source = Path(init_from)
        digests = np.union1d(digests, read_trained_on(source, newest_card(source)))
    return keep_trained_on(workdir, digests)


def _tokenizer(workdir: Path, loaded: Loaded) -> Encoder | tokenizer.Unavailable:
    """The tokenizer that the run keeps in its folder; prepared tokens may have none."""
    source, kept = loaded.config.data.source, workdir / TOKENIZER
    if kept.is_file():
        try:
            encoder = tokenizer.load(str(kept))
        except (DataError, ImportError):
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
    """The configuration of a run, checked against the newest card of a checkpoint that is
    readable."""
    config = Workdir(workdir).config()
    if config is None:
        raise Stop(f"{workdir} is not the workdir of a run: it has no config.json")
    for step in reversed(steps_of(workdir)):
        path = workdir / "checkpoints" / str(step) / "card" / "metadata"
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            refuse_edited(read_json(path), config, workdir)
            break
    return config


def saved_steps(workdir: Path) -> list[int]:
    """List the steps of a run's current checkpoints, at least one."""
    saved = steps_of(workdir)
    if not saved:
        raise Stop(f"{workdir} has no checkpoint yet")
    return saved
