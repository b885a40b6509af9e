"""wandb as a view of a run: its data are all in the workdir, and any call may fail."""

import dataclasses
import hashlib
import json
import os
import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.config import Training, environment, schema
from posenc_jax.runtime.errors import DONE, Stop
from posenc_jax.runtime.files import expanded, write_atomically
from posenc_jax.runtime.terminal import say, warn


class View:
    """A run of wandb; logs until the first failure, which is reported once."""

    def __init__(
        self,
        config: Training,
        workdir: Path,
        identity: str,
        facts: Mapping[str, Any],
        *,
        job: str = "train",
    ):
        self.required = config.wandb.required
        self.run: Any = None
        self.run = self._try(lambda: _start(config, workdir, identity, facts, job))

    def log(self, values: Mapping) -> None:
        """Log all values but None, which would give an empty panel."""
        known = {name: value for name, value in values.items() if value is not None}
        if self.run is not None:
            self._try(lambda: self.run.log(known))

    def keep(self, path: Path) -> None:
        """Keep a file as an artifact."""
        if self.run is not None:
            self._try(lambda: self.run.log_artifact(str(path), type=path.stem))

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


class Curves(NamedTuple):
    """Curves of an evaluation."""

    file: Path  # curves.csv
    rows: Sequence[dict]  # of it
    pictures: Sequence[Path]
    facts: Mapping[str, Any]


def log_with_training(config: Training, workdir: Path, curves: Curves) -> None:
    """Log the curves in the wandb run of the training, where wandb's sweeps read their numbers.

    wandb cannot change a logged point, so later curves become a run of their own. So do those of
    an offline run: a file of the same id would replace the training's history at a server, unless
    both are uploaded by a wandb that resumes.
    """
    if _is_off(config.wandb.mode) and not config.wandb.required:
        return  # training said so
    identity, path = identity_of(workdir), workdir / "eval" / "wandb_with_training"
    if config.wandb.mode == "offline" or _read(path) == identity:
        return log_evaluation(config, config.wandb.mode, workdir, curves)
    subject = {name: curves.facts[name] for name in ("step", "data_fingerprint")}
    facts = {"evaluation": curves.facts["evaluation"] | subject}
    if _log_curves(View(config, workdir, identity, facts), curves):
        write_atomically(path, identity)
        write_atomically(workdir / "eval" / "wandb_id", _digest_of(curves.rows))


def log_job(config: Training, workdir: Path) -> None:
    """Log the job type and tags of a training that was done under others, such as a trial's."""
    if not _is_off(config.wandb.mode):
        View(config, workdir, identity_of(workdir), {}).finish(DONE, {})


def log_evaluation(config: Training, mode: str, workdir: Path, curves: Curves) -> None:
    """Log the curves as a wandb run of their own in the training run's group, once."""
    applied = environment.applied(config.wandb)
    applied = dataclasses.replace(applied, mode=mode or applied.mode)
    config = dataclasses.replace(config, wandb=applied)
    identity, path = _digest_of(curves.rows), workdir / "eval" / "wandb_id"
    if _read(path) != identity:
        if _log_curves(View(config, workdir, identity, curves.facts, job="eval"), curves):
            write_atomically(path, identity)


def _log_curves(view: View, curves: Curves) -> bool:
    """Log bits per byte at every length as extrap/<protocol>/<extension>, perplexity as /ppl (a
    part of a protocol after its name)."""
    last = max(row["step"] for row in curves.rows)
    newest = [row for row in curves.rows if row["step"] == last]
    for length in sorted({row["length"] for row in newest}):
        multiple = length / newest[0]["train_length"]
        values: dict[str, Any] = {"eval/length": length, "eval/multiple": multiple}
        for row in (r for r in newest if r["length"] == length and r["nll"] is not None):
            name = f"{_panel(row)}/{row['method']}"
            values |= {f"{name}/ppl": row["ppl"], name: row["bpb"]}
        view.log(values)
    if view.run is not None:
        view.log(_media(curves))
    view.keep(curves.file)
    return view.finish(DONE, summary_of(newest))


def summary_of(rows: Sequence[dict]) -> dict[str, float]:
    """Bits per byte as extrap/<protocol>/<extension>@<multiple>x; names omit the largest scale."""
    summary = {}
    for row in rows:
        if row["nll"] is None or row["bpb"] is None:
            continue
        largest = max(r["scale"] or 0 for r in rows if r["extension"] == row["extension"])
        short = (row["scale"] or 0) == largest and not row["window"]
        extension = row["extension"] if short else row["method"]
        multiple = f"{row['length'] / row['train_length']:g}x"
        summary[f"{_panel(row)}/{extension}@{multiple}"] = row["bpb"]
    return summary


def _panel(row: Mapping[str, Any]) -> str:
    """extrap/<protocol>, or extrap/<protocol>/<part> of a protocol that scores parts."""
    part = f"/{row['part']}" if row["part"] else ""
    return f"extrap/{row['protocol']}{part}"


def _media(curves: Curves) -> dict[str, Any]:
    import wandb

    data: list[Any] = [list(row.values()) for row in curves.rows]
    table = wandb.Table(columns=list(curves.rows[0]), data=data, allow_mixed_types=True)
    return {"eval/curves": table} | {
        f"plots/{path.stem}": wandb.Image(str(path)) for path in curves.pictures
    }


def _is_off(mode: str) -> bool:
    return mode == "disabled" or mode == "auto" and not _has_key()


def _has_key() -> bool:
    """True if wandb finds a key for its server; one that it refuses fails where a run starts."""
    import wandb

    try:
        return wandb.login(prompt=False, verify=False)
    except wandb.Error:
        return True


def _start(
    config: Training, workdir: Path, identity: str, facts: Mapping[str, Any], job: str
) -> Any:
    """Start or resume a wandb run by its id; None if off. Its summary has each loss's minimum."""
    mode: Any = config.wandb.mode  # one of wandb's literals
    if _is_off(mode):
        off = "there is no key; to turn it on: wandb login, or --config.wandb.mode=offline"
        if mode == "auto" and config.wandb.required:
            raise Stop(off)
        if mode == "auto":
            say(f"wandb: off, {off}")
        return None
    import wandb

    name = config.wandb.name or workdir.resolve().name
    group, tags = _group_and_tags(config)
    run = wandb.init(
        project=config.wandb.project,
        group=config.wandb.group or group,
        name=name if job == "train" else f"{name}-{job}",
        job_type=config.wandb.job or job if job == "train" else job,
        tags=tags,
        id=identity,
        resume="allow",
        mode="online" if mode == "auto" else mode,
        dir=str(expanded(config.wandb.dir or workdir)),
        config=schema.as_fields(config) | dict(facts),
        settings=wandb.Settings(init_timeout=30, silent=True, console="off"),
    )
    for axis, shown in (("train/step", "train/*"), ("eval/length", "extrap/*")):
        run.define_metric(axis, hidden=True)
        run.define_metric(shown, step_metric=axis)
    for loss in ("loss", "bpb", "valid_loss", "valid_bpb", "choose_loss", "choose_bpb"):
        run.define_metric(f"train/{loss}", step_metric="train/step", summary="min")
    for noise in ("train/tokens", "train/time", "eval/multiple"):
        run.define_metric(noise, hidden=True)
    _say_where(run)
    return run


def _group_and_tags(config: Training) -> tuple[str, list[str]]:
    """The group of comparable runs (one text, tokenizer, length and size), and a run's tags."""
    fields = config.data.source.as_fields()
    source, size = fields["source"], f"{config.model.layers}x{config.model.width}"
    text = f"{source}-{Path(fields.get('tokenizer', '')).stem}"
    tag = fields[{"mixture": "mixture", "synthetic": "task"}.get(source, "source")]
    if source == "tokens":
        text = tag = Path(fields["tokens"]).name
    given = os.environ.get("WANDB_TAGS", "").split(",")
    words = filter(None, (config.encoding.name, tag, size, config.wandb.job, *given))
    tags = [word[:64] for word in words]  # wandb takes no more letters
    return f"{text}-L{config.train_length}-{size}", tags


def _say_where(run: Any) -> None:
    """Print the URL of a wandb run, or the command to upload an offline one."""
    if run.url:
        say(f"wandb: {run.url}")
    elif run.dir:
        folder = Path(run.dir).parent.parent
        say(f"wandb: offline, to upload: wandb sync {shlex.quote(str(folder))}/offline-run-*")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _digest_of(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def identity_of(workdir: Path) -> str:
    """Id of a run in wandb, stored in its workdir so that a resumed run keeps it."""
    path = workdir / "wandb_id"
    if not path.exists():
        write_atomically(path, environment.trial() or uuid.uuid4().hex[:12])
    return path.read_text(encoding="utf-8").strip()
