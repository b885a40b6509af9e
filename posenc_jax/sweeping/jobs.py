"""Jobs of a sweep: their names, their commands, and their progress.

All state of a sweep is in the folders of its runs, so a killed sweep resumes from them.
"""

import dataclasses
import functools
import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from posenc_jax.checks import known
from posenc_jax.config import Evaluation, Training, flags, load
from posenc_jax.config.compare import other_fields
from posenc_jax.registry import ROOT
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime import errors
from posenc_jax.runtime.errors import ConfigError, OtherConfig, Stop
from posenc_jax.runtime.files import expanded

KEYS = ("recipe", "grid", "fields", "evaluation", "choose", "slurm")  # of a sweep file
EVALUATION = "evaluation."  # begins a field of the grid that is one of the job's evaluation
UNNAMED = ("label", "anneal")  # fields left out of a job's name: others tell jobs apart
SHORT = {"seed": "s", "train_length": "L"}  # s0, L128; other fields as name=value


@dataclasses.dataclass(frozen=True)
class Job:
    """A run of the sweep: an ordinary workdir."""

    ends_well: ClassVar[Sequence[int]] = (errors.DONE,)  # exit codes that count as success

    name: str
    folder: Path
    recipe: str
    fields: tuple[tuple[str, Any], ...]  # over the recipe
    evaluation: tuple[tuple[str, Any], ...]  # over configs/eval.py
    others: Mapping[Path, "Job"] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def command(self) -> list[str]:
        """Trains the run, or resumes it, then evaluates it."""
        return [*self._train, *self._evaluated]

    @property
    def _train(self) -> list[str]:
        words = [f"--config={self.recipe}", f"--workdir={self.folder}"]
        return [sys.executable, str(ROOT / "train.py"), *words, *_flags(self.fields)]

    @property
    def _evaluated(self) -> list[str]:
        recipe = f"--evaluate={ROOT / 'configs' / 'eval.py'}"
        return [recipe, *_flags(self.evaluation_fields, "--evaluate")]

    @functools.cached_property
    def evaluation_fields(self) -> tuple[tuple[str, Any], ...]:
        """Fields of its evaluation, with `none` added if no extension of them fits the encoding."""
        fields = dict(self.evaluation)
        if "extensions" in fields and not self._some_fit(str(fields["extensions"])):
            fields["extensions"] = f"none,{fields['extensions']}"
        return tuple(fields.items())

    def _some_fit(self, extensions: str) -> bool:
        from posenc_jax.evaluation import check

        try:
            return check.some_fit(extensions, self.config)
        except (ConfigError, ValueError, KeyError):  # which `mistakes` lists
            return True

    @property
    def sources(self) -> set[Path]:
        """Folders of the runs that it goes on from."""
        fields = dict(self.fields)
        named = (fields.get(name) for name in ("anneal", "init_from"))
        return {expanded(name).resolve() for name in named if name}

    @functools.cached_property
    def config(self) -> Training:
        """The training configuration."""
        _, recipe, problems = flags.parse(self._train[1:])
        ahead = {place: self.others[place].config for place in self.sources & set(self.others)}
        return load(recipe, self.existing, more=problems, planned=ahead)

    @functools.cached_property
    def existing(self) -> Training | None:
        """The configuration of the run already in its folder."""
        try:
            return Workdir(self.folder).config()
        except Stop:  # reported by training
            return None

    def mistakes(self) -> list[str]:
        """Errors in the training and evaluation commands, before anything runs."""
        problems: list[str] = []
        for name in ("config", "asked"):
            try:
                getattr(self, name)
            except ConfigError as error:
                problems += error.args
        return problems

    @functools.cached_property
    def asked(self) -> Evaluation:
        """The configuration of its evaluation."""
        from posenc_jax.evaluation import check

        words = flags.without_evaluation(self._evaluated)[1]
        evaluation, problems = flags.parse_evaluation(words)
        assert evaluation is not None  # --evaluate is one of the words
        return check.load(evaluation, more=problems)

    def other_fields(self) -> list[str]:
        """Fields in which the run already in this folder differs from the job."""
        return [] if self.existing is None else other_fields(self.existing, self.config)

    @property
    def log(self) -> Path:
        """Output of its commands."""
        return self.folder / "sweep.log"

    def status(self) -> dict:
        try:
            return Workdir(self.folder).read_status()
        except Stop:
            return {}

    @property
    def no_result(self) -> str:
        """Reason of failure of a command that exited with 0 but must run again."""
        return f"exited with 0 but left no result in {self.folder}"

    def is_trained(self) -> bool:
        status = self.status()
        return status.get("state") == "done" and status.get("step") == self.config.steps

    def is_done(self) -> bool:
        return self.is_trained() and Workdir(self.folder).is_evaluated(self.asked)

    def last_metrics(self, name: str = "tokens_per_second") -> dict:
        """Newest line of metrics with this value."""
        try:
            lines = read_metrics(self.folder / "metrics.jsonl")
        except Stop:
            return {}
        return next((line for line in reversed(lines) if name in line), {})


def jobs_of(
    sweep: Mapping[str, Any], workdir: Path, extra: Sequence[tuple[str, Any]] = ()
) -> list[Job]:
    """Jobs of a sweep file; `extra` fields are set in all of them."""
    _check_keys(sweep)
    jobs: dict[str, Job] = {}
    by_folder: dict[Path, Job] = {}
    for grid_job in sweep.get("grid", []):
        fields = dict(grid_job)
        for name, value in extra:
            if name in fields:
                raise ConfigError(
                    f"--config.{name}={value} would override {name} of the grid in every job; "
                    "change the grid"
                )
        recipe = fields.pop("recipe", sweep.get("recipe"))
        if not recipe:
            raise ConfigError("a job of the grid has no recipe, and neither has the sweep")
        prefixed = {name: fields.pop(name) for name in list(fields) if name.startswith(EVALUATION)}
        evaluation = {name.removeprefix(EVALUATION): value for name, value in prefixed.items()}
        evaluation = tuple((dict(sweep.get("evaluation", {})) | evaluation).items())
        name = name_of({field: v for field, v in grid_job.items() if field not in prefixed})
        if name in jobs:
            raise ConfigError(f"two jobs of the grid have the name {name!r}")
        sweep_name = os.path.basename(os.path.realpath(workdir))
        group = {} if os.environ.get("WANDB_RUN_GROUP") else {"wandb.group": sweep_name}
        shared = group | dict(sweep.get("fields", {}))
        merged = tuple((shared | fields | dict(extra)).items())
        job = Job(name, workdir / name, str(recipe), merged, evaluation, by_folder)
        jobs[name] = by_folder[job.folder.resolve()] = job
    if not jobs:
        raise ConfigError("the grid is empty")
    return list(jobs.values())


def refuse_mistakes(jobs: Sequence[Job]) -> None:
    problems = {job.name: lines for job in jobs if (lines := job.mistakes())}
    if problems:
        raise ConfigError(_listed(problems, "of the jobs cannot run"))


def refuse_other_runs(jobs: Sequence[Job]) -> None:
    different = {job.name: lines for job in jobs if (lines := job.other_fields())}
    if different:
        raise OtherConfig(
            _listed(different, "of the jobs' folders have runs with another configuration")
            + "\nuse another --workdir, or move those folders away"
        )


def _listed(problems: Mapping[str, Sequence[str]], what: str, most: int = 10) -> str:
    """List of problems; jobs with the same problems share a line."""
    by_problems: dict[tuple, list[str]] = {}
    for name, lines in problems.items():
        by_problems.setdefault(tuple(lines), []).append(name)
    listed = [f"{len(problems)} {what}"]
    for lines, names in list(by_problems.items())[:most]:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        listed.append(f"  {', '.join(names[:3])}{more}: " + "; ".join(lines))
    if len(by_problems) > most:
        listed.append(f"  and {len(by_problems) - most} others")
    return "\n".join(listed)


def _check_keys(sweep: Mapping[str, Any]) -> None:
    if not isinstance(sweep, Mapping):
        raise ConfigError(
            "get_config() of a sweep file must return a dict with a grid, as in configs/sweeps/; "
            f"got {type(sweep).__name__}"
        )
    for key in sweep:
        try:
            known("key of a sweep file", key, KEYS)
        except ValueError as error:
            raise ConfigError(str(error)) from error


def name_of(fields: dict[str, Any]) -> str:
    """Name of a job, such as `rope-s0`.

    It depends only on the job's fields, so a growing grid renames nothing.
    """
    words = []
    for field, value in fields.items():
        if field in UNNAMED:
            continue
        if field == "recipe":
            file, _, size = str(value).partition(":")
            words.insert(0, Path(file).stem + (f"-{size}" if size else ""))
        elif field == "init_from":
            words.append(f"from={Path(str(value)).name}")
        elif field in SHORT:
            words.append(f"{SHORT[field]}{value}")
        else:
            words.append(f"{field.rpartition('.')[2]}={value}")
    name = re.sub(r"[^\w.=+-]+", "_", "-".join(words)).strip("._") or "run"
    if len(name) > 100:  # file names are limited
        name = f"{name[:90]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def _flags(fields: Sequence[tuple[str, Any]], group: str = "--config") -> list[str]:
    return [f"{group}.{name}={value}" for name, value in fields]
