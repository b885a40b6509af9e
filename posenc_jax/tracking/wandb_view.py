"""wandb as a view of a run: what it shows is in the workdir, and it may fail at any call."""

import hashlib
import json
import netrc
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from posenc_jax.errors import Stop
from posenc_jax.evaluation import records
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.show import label
from posenc_jax.evaluation.statistics import series
from posenc_jax.files import write_atomically
from posenc_jax.terminal import say, warn
from posenc_jax.tracking import environment


class View:
    """Logs to wandb until the first failure, which is said once."""

    def __init__(self, start: Callable[[], Any], *, required: bool):
        self.required = required
        self.run: Any = None
        self.run = self._try(start)

    def log(self, values: Mapping) -> None:
        if self.run is not None:
            self._try(lambda: self.run.log(dict(values)))

    def finish(self, code: int, summary: Mapping) -> bool:
        """Whether it got through."""
        run, self.run = self.run, None

        def end() -> bool:
            run.summary.update(dict(summary))
            run.finish(exit_code=code)
            return True

        return run is not None and self._try(end) is True

    def _try(self, call: Callable):
        try:
            return call()
        except Exception as error:  # anything: a missing key, a dead service, a full disk
            self.run = None
            if isinstance(error, ConnectionError):
                _forget_service()
            if self.required:
                raise Stop(f"wandb failed and wandb.required is set: {error}") from error
            warn(f"wandb failed and is off from here; metrics.jsonl goes on: {error}")
            return None


def _forget_service() -> None:
    """wandb's own process is gone; at exit wandb would fail to say good-bye to it."""
    import wandb

    with suppress(Exception):
        wandb.teardown()


class TrainingView(View):
    """The lines of metrics.jsonl as train/<name> against train/step; `facts` are in its config."""

    def __init__(self, config, workdir: Path, facts: Mapping[str, Any]):
        super().__init__(
            lambda: start_training(config, workdir, _identity(workdir / "wandb_id"), facts=facts),
            required=config.wandb.required,
        )

    def log(self, values: Mapping) -> None:
        super().log({f"train/{name}": value for name, value in values.items()})


def log_evaluation(
    config,
    asked: str,
    workdir: Path,
    cells: Sequence[Measured],
    pictures: Sequence[Path],
    facts: Mapping[str, Any],
) -> None:
    """The curves as one run of the training run's group, with length on the horizontal axis.

    A point once logged cannot be changed there, so other curves are another run, and the same ones
    are not logged again.
    """
    rows = records.rows(cells)
    identity = _digest(rows)
    path = workdir / "eval" / "wandb_id"
    if path.exists() and path.read_text(encoding="utf-8") == identity:
        return
    view = View(
        lambda: start_evaluation(config, workdir, identity, asked, facts=facts),
        required=config.wandb.required,
    )
    if log_curves(view, rows, pictures):
        write_atomically(path, identity)


def log_curves(view: View, rows: Sequence[dict], pictures: Sequence[Path]) -> bool:
    """For every length its values as extrap/<protocol>/<extension>, in bits per byte, and /ppl; and
    all methods of a protocol in one panel."""
    last = max(row["step"] for row in rows)
    newest = [row for row in rows if row["step"] == last]
    summary: dict[str, Any] = {}
    for length in sorted({row["length"] for row in newest}):
        multiple = length / newest[0]["train_length"]
        values: dict[str, Any] = {"eval/length": length, "eval/multiple": multiple}
        for row in (r for r in newest if r["length"] == length and r["nll"] is not None):
            name = f"extrap/{row['protocol']}/{label(row)}"
            values |= {f"{name}/ppl": row["ppl"]}
            if row["bpb"] is None:
                continue
            values |= {name: row["bpb"]}
            largest = max(r["scale"] or 0 for r in newest if r["extension"] == row["extension"])
            extension = row["extension"] if (row["scale"] or 0) == largest else label(row)
            extension = "window" if row["window"] else extension
            at = f"{length / row['train_length']:g}x"
            summary[f"extrap/{row['protocol']}/{extension}@{at}"] = row["bpb"]
        view.log(values)
    if view.run is None:
        return False
    view.log(_media(rows, pictures) | _methods(newest))
    view.finish(0, summary)
    return True


def _media(rows: Sequence[dict], pictures: Sequence[Path]) -> dict[str, Any]:
    import wandb

    data: list[Any] = [[row[name] for name in records.COLUMNS] for row in rows]
    table = wandb.Table(columns=list(records.COLUMNS), data=data, allow_mixed_types=True)
    images = {f"plots/{path.stem}": wandb.Image(str(path)) for path in pictures}
    return {"eval/curves": table, **images}


def _methods(rows: Sequence[dict]) -> dict[str, Any]:
    """A panel for each protocol, in which the methods of this run lie over one another."""
    import wandb

    panels = {}
    for protocol in ("same_token", "nonoverlap", "sliding"):
        lines: dict[str, list[tuple[int, float]]] = {}
        chosen = [row for row in rows if row["protocol"] == protocol and row["nll"] is not None]
        field = "bpb" if all(row["bpb"] is not None for row in chosen) else "nll"
        for row in sorted(chosen, key=lambda row: row["length"]):
            lines.setdefault(label(row), []).append((row["length"], row[field]))
        if lines:
            panels[f"methods/{protocol}"] = wandb.plot.line_series(
                xs=[[x for x, _ in line] for line in lines.values()],
                ys=[[y for _, y in line] for line in lines.values()],
                keys=list(lines),
                title=f"{protocol}, {'bits per byte' if field == 'bpb' else 'nats per token'}",
                xname="length",
            )
    return panels


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


def start_training(
    config, folder: Path, identity: str, asked: str = "", facts: Mapping[str, Any] | None = None
) -> Any:
    """The best of each loss is in the summary; what is no curve to look at has no panel."""
    name = config.wandb.get("name") or folder.resolve().name
    run = _start(config, folder, identity, asked, "train", name, "train/step", "train/*", facts)
    for loss in ("loss", "bpb", "valid_loss", "valid_bpb", "choose_loss", "choose_bpb"):
        _define(run, f"train/{loss}", step_metric="train/step", summary="min")
    for noise in ("step", "tokens", "time"):
        _define(run, f"train/{noise}", hidden=True)
    return run


def start_evaluation(
    config, workdir: Path, identity: str, asked: str = "", facts: Mapping[str, Any] | None = None
) -> Any:
    config = _told_now(config)
    name = f"{config.wandb.get('name') or workdir.resolve().name}-eval"
    here = (config, workdir / "eval", identity, asked, "eval", name, "eval/length", "extrap/*")
    run = _start(*here, facts)
    for axis in ("eval/length", "eval/multiple"):
        _define(run, axis, hidden=True)
    return run


def _told_now(config) -> Any:
    """A run's own settings, under what the environment of this command says."""
    config = config.copy_and_resolve_references()
    environment.apply(config)
    return config


def _define(run: Any, name: str, **options: Any) -> None:
    if run is not None:
        run.define_metric(name, **options)


def log_report(
    config, asked: str, folder: Path, data: Mapping[str, Any], pictures: Sequence[Path]
) -> None:
    """The report as one run of the group: means over seeds by length, the ranking, the pictures.

    As with the curves of a run, other numbers are another one, and the same are not logged again.
    """
    groups = {run["id"]: run["group"] for run in data["runs"]}
    content = _digest([asked, groups, data["curves"], data["ranking"], data["notes"]])
    path = folder / "wandb_id"
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return
    here = (_told_now(config), folder, uuid.uuid4().hex[:12], asked)
    view = View(
        lambda: _start(*here, "report", "report", "report/length", "report/*"),
        required=config.wandb.required,
    )
    lines: dict[str, list[dict]] = {}
    for curve in data["curves"]:
        name = f"report/{curve['protocol']}/{groups[curve['run']]} {curve['method']}"
        lines.setdefault(name, []).append(curve)
    found: dict[int, dict[str, float]] = {}
    for name, curves in lines.items():
        for length, values in zip(*series(curves, "bpb"), strict=True):
            found.setdefault(length, {})[name] = sum(values) / len(values)
    for length, means in sorted(found.items()):
        view.log({"report/length": length} | means)
    if view.run is not None:
        view.log(_ranking(data, pictures))
    if view.finish(0, {"runs": len(data["runs"]), "notes": "; ".join(data["notes"])}):
        write_atomically(path, content)


def _ranking(data: Mapping[str, Any], pictures: Sequence[Path]) -> dict[str, Any]:
    import wandb

    columns: Any = "protocol,length,run,extension,bpb,behind,low,high,verdict".split(",")
    rows: list[Any] = [
        [protocol, length, row["group"], row["method"], row["bpb"], *row["behind"], row["verdict"]]
        for protocol, tables in data["ranking"].items()
        for length, table in tables.items()
        for row in table
    ]
    images = {f"plots/{path.stem}": wandb.Image(str(path)) for path in pictures}
    return {"ranking": wandb.Table(columns=columns, data=rows), **images}


def _start(
    config,
    folder: Path,
    identity: str,
    asked: str,
    job: str,
    name: str,
    axis: str,
    shown: str,
    facts: Mapping[str, Any] | None = None,
) -> Any:
    """A run of wandb's that shows what `shown` names against `axis`; None where it is disabled."""
    chosen = asked or config.wandb.mode
    if chosen == "disabled":
        return None
    import wandb

    run = wandb.init(
        project=config.wandb.project,
        group=config.wandb.group or _group(config),
        name=name,
        job_type=job,
        id=identity,
        resume="allow",
        mode=mode(chosen),
        dir=str(Path(config.wandb.get("dir") or folder).expanduser()),
        config=config.to_dict() | dict(facts or {}),
        settings=wandb.Settings(init_timeout=30, silent=True, console="off"),
    )
    run.define_metric(axis)
    run.define_metric(shown, step_metric=axis)
    _say_where(run)
    return run


def _group(config) -> str:
    """Runs that may be laid over one another: of one text, tokenizer, length and size."""
    tokenizer = Path(config.data.tokenizer).stem
    size = f"{config.model.layers}x{config.model.width}"
    return f"{config.data.source}-{tokenizer}-L{config.train_length}-{size}"


def _say_where(run: Any) -> None:
    """Where to look, or what is needed to upload."""
    url, folder = getattr(run, "url", None), getattr(run, "dir", None)
    if url:
        say(f"wandb: {url}")
    elif folder:
        say(f"wandb: offline, to upload: wandb sync {Path(folder).parent}")


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def _identity(path: Path) -> str:
    """One id for the run's whole life, so that going on later is the same run there."""
    if not path.exists():
        write_atomically(path, environment.trial() or uuid.uuid4().hex[:12])
    return path.read_text(encoding="utf-8").strip()
