"""wandb as a view of a run: its data are all in the workdir, and any call may fail."""

import dataclasses
import hashlib
import json
import netrc
import os
import shlex
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posenc_jax.config import Training, environment, schema
from posenc_jax.errors import DONE, Stop, code_of
from posenc_jax.files import write_atomically
from posenc_jax.terminal import say, warn


class View:
    """Logs to wandb until the first failure, which is reported once."""

    def __init__(self, start: Callable[[], Any], *, required: bool):
        self.required = required
        self.run: Any = None
        self.run = self._try(start)

    def log(self, values: Mapping) -> None:
        """Log all values but None, which would give an empty panel."""
        known = {name: value for name, value in values.items() if value is not None}
        if self.run is not None:
            self._try(lambda: self.run.log(known))

    def finish(self, code: int, summary: Mapping) -> bool:
        """Finish the wandb run; True on success."""
        run, self.run = self.run, None

        def end() -> bool:
            run.summary.update(dict(summary))
            run.finish(exit_code=code)
            return True

        return run is not None and self._try(end) is True

    def _try(self, call: Callable):
        try:
            return call()
        except Exception as error:  # any error: a missing key, a dead service, a full disk
            self.run = None
            if isinstance(error, ConnectionError):
                _forget_service()
            if self.required:
                raise Stop(f"wandb failed and wandb.required is set: {error}") from error
            warn(f"wandb failed and is off from here on; metrics.jsonl continues: {error}")
            return None


def _forget_service() -> None:
    """Tear down the connection to wandb's dead process, which would raise an error at exit."""
    import wandb

    with suppress(Exception):
        wandb.teardown()


class TrainingView(View):
    """Shows metrics.jsonl as train/<name> against train/step, with `facts` in the config."""

    def __init__(self, config, workdir: Path, facts: Mapping[str, Any]):
        super().__init__(
            lambda: start_training(config, workdir, identity_of(workdir), facts=facts),
            required=config.wandb.required,
        )

    def log(self, values: Mapping) -> None:
        super().log({f"train/{name}": value for name, value in values.items()})


class Handover:
    """Keeps the wandb run of a finished training open for the evaluation that follows.

    If finished and resumed, it would be a sweep trial without its metric, and offline two folders.
    """

    def __init__(self) -> None:
        self.run: Any = None
        self.required = self.trained = False

    def __enter__(self) -> "Handover":
        return self

    def training(self, config, workdir: Path, facts: Mapping[str, Any]) -> View:
        self.required, self.trained = config.wandb.required, True
        return _HandedOver(self, config, workdir, facts)

    def take(self, config, workdir: Path) -> Any:
        """Return the open wandb run, or resume that of an earlier training by its id."""
        run, self.run = self.run, None
        if self.trained:  # None if wandb is off
            return run
        return start_training(config, workdir, identity_of(workdir))

    def __exit__(self, kind, error, trace) -> None:
        run, self.run = self.run, None
        if run is not None:  # not taken by an evaluation
            code, required = code_of(error), self.required and error is None
            View(lambda: run, required=required).finish(code, {"exit_code": code})


class _HandedOver(TrainingView):
    def __init__(self, to: Handover, *about: Any):
        super().__init__(*about)
        self.to = to

    def finish(self, code: int, summary: Mapping) -> bool:
        if code != DONE:
            return super().finish(code, summary)
        self.to.run, self.run = self.run, None
        return self.to.run is not None


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("//")[-1].split("/")[0]
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def start_training(
    config, folder: Path, identity: str, requested: str = "", facts: Mapping[str, Any] | None = None
) -> Any:
    """Start the wandb run of a training run; the summary holds each loss's best value."""
    name = config.wandb.name or folder.resolve().name
    run = start(config, folder, identity, requested, "train", name, "train/step", "train/*", facts)
    for loss in ("loss", "bpb", "valid_loss", "valid_bpb", "choose_loss", "choose_bpb"):
        define(run, f"train/{loss}", step_metric="train/step", summary="min")
    for noise in ("step", "tokens", "time"):
        define(run, f"train/{noise}", hidden=True)
    return run


def settings_now(config: Training) -> Training:
    """A run's settings, overridden by the environment of this command."""
    return dataclasses.replace(config, wandb=environment.applied(config.wandb))


def define(run: Any, name: str, **options: Any) -> None:
    if run is not None:
        run.define_metric(name, **options)


def start(
    config,
    folder: Path,
    identity: str,
    requested: str,
    job: str,
    name: str,
    axis: str,
    shown: str,
    facts: Mapping[str, Any] | None = None,
) -> Any:
    """Start a wandb run with the metrics `shown` against `axis`; None if disabled."""
    mode: Any = requested or config.wandb.mode  # one of wandb's literals
    if mode == "auto" and not _has_key():
        offline = "--wandb=offline" if job == "report" else "--config.wandb.mode=offline"
        off = f"there is no key; to turn it on: wandb login, or {offline}"
        if config.wandb.required:
            raise Stop(off)
        say(f"wandb: off, {off}")
        return None
    if mode == "disabled":
        return None
    import wandb

    run = wandb.init(
        project=config.wandb.project,
        group=config.wandb.group or _group(config),
        name=name,
        job_type=job,
        tags=_tags(config) if job != "report" else None,
        id=identity,
        resume="allow",
        mode="online" if mode == "auto" else mode,
        dir=str(Path(config.wandb.dir or folder).expanduser()),
        config=schema.as_fields(config) | dict(facts or {}),
        settings=wandb.Settings(init_timeout=30, silent=True, console="off"),
    )
    run.define_metric(axis)
    run.define_metric(shown, step_metric=axis)
    _say_where(run, job, folder)
    return run


def _group(config: Training) -> str:
    """The group of comparable runs: one text, tokenizer, length and size."""
    fields = config.data.source.as_fields()
    text = f"{fields['source']}-{Path(fields.get('tokenizer', '')).stem}"
    if fields["source"] == "tokens":
        text = Path(fields["tokens"]).name
    return f"{text}-L{config.train_length}-{_size(config)}"


def _size(config) -> str:
    return f"{config.model.layers}x{config.model.width}"


def _tags(config: Training) -> list[str]:
    """Encoding, text and size; wandb takes at most 64 letters."""
    fields = config.data.source.as_fields()
    of_source = {"mixture": "mixture", "synthetic": "task"}
    text = fields[of_source.get(fields["source"], "source")]
    if fields["source"] == "tokens":
        text = Path(fields["tokens"]).name
    return [tag[:64] for tag in (config.encoding.name, text, _size(config))]


def _say_where(run: Any, job: str, folder: Path) -> None:
    """Print the URL of a wandb run, or the command to upload an offline one."""
    url, folder_of_run = getattr(run, "url", None), getattr(run, "dir", None)
    if url:
        say(f"wandb: {url}")
    elif job == "report" and folder_of_run:
        say(f"wandb: offline, to upload: wandb sync {shlex.quote(str(Path(folder_of_run).parent))}")
    elif folder_of_run:
        workdir = shlex.quote(str(folder.parent if job == "eval" else folder))
        say(f"wandb: offline, to upload: python scripts/sync_wandb.py {workdir}")


def digest_of(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def identity_of(workdir: Path) -> str:
    """Id of a run in wandb, stored in its workdir so that a resumed run keeps it."""
    path = workdir / "wandb_id"
    if not path.exists():
        write_atomically(path, environment.trial() or uuid.uuid4().hex[:12])
    return path.read_text(encoding="utf-8").strip()
