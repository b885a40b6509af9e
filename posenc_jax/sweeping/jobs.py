"""The jobs of a sweep: names, commands, and the progress of each, read from its folder.

All state of a sweep is in the folders of its runs, so a killed sweep resumes from them.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from posenc_jax import errors
from posenc_jax.checks import known
from posenc_jax.config import Training, parse, schema
from posenc_jax.config import check as checks
from posenc_jax.config.check import BUILT_FROM as NUMBERS
from posenc_jax.config.compare import FREE, differences, flat
from posenc_jax.errors import ConfigError, OtherConfig, Stop
from posenc_jax.evaluation import judging, progress
from posenc_jax.files import write_atomically
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.runs.workdir import Workdir

ROOT = Path(__file__).parent.parent.parent
KEYS = ("recipe", "grid", "fields", "evaluation", "choose", "slurm")  # of a sweep file
MADE = ("model.vocab", "original_length", "init_from")  # filled in by training where unset
BUILT_FROM = ("model", "encoding", "extension", *NUMBERS)
EVALUATION = "evaluation."  # begins a field of the grid that is one of the job's evaluation
SHORT = {"seed": "s", "train_length": "L"}  # s0, L128; other fields as name=value


@dataclasses.dataclass(frozen=True)
class Job:
    """A run of the sweep: an ordinary workdir."""

    ends_well: ClassVar[Sequence[int]] = (errors.DONE,)  # exit codes of a command that did its work

    name: str
    folder: Path
    recipe: str
    fields: tuple[tuple[str, Any], ...]  # over the recipe
    evaluation: tuple[tuple[str, Any], ...]  # over configs/eval.py

    @property
    def train(self) -> list[str]:
        return [*self._train, *self._evaluated_later]

    @property
    def _train(self) -> list[str]:
        words = [f"--config={self.recipe}", f"--workdir={self.folder}"]
        return [sys.executable, str(ROOT / "train.py"), *words, *_flags(self.fields)]

    @property
    def _evaluated_later(self) -> list[str]:
        """Words with which a training is refused that could not be evaluated."""
        asked = [field for field in self.asked if not field[0].startswith("wandb.")]
        recipe = f"--evaluate={ROOT / 'configs' / 'eval.py'}"
        return ["--train_only", recipe, *_flags(asked, "--evaluate")]

    @property
    def evaluate(self) -> list[str]:
        program = str(ROOT / "eval_extrapolation.py")
        return [sys.executable, program, f"--workdir={self.folder}", *_flags(self.asked)]

    @functools.cached_property
    def asked(self) -> tuple[tuple[str, Any], ...]:
        """Its evaluation; a list of which nothing fits its encoding is for other jobs of the sweep,
        and `none` is read beside it."""
        fields = dict(self.evaluation)
        if "extensions" in fields and not self._some_fit(str(fields["extensions"])):
            fields["extensions"] = f"none,{fields['extensions']}"
        return tuple(fields.items())

    def _some_fit(self, extensions: str) -> bool:
        try:
            return _some_fit(extensions, built_from(self.config))
        except (ConfigError, ValueError, KeyError):  # which `mistakes` lists
            return True

    @functools.cached_property
    def _checked(self) -> checks.Checked:
        return checks.without_building(parse.parse(self._train[1:])[1], self.existing)

    @property
    def config(self) -> Training:
        """The training configuration."""
        if self._checked.run is None:
            raise ConfigError("\n".join(self._checked.problems))
        return self._checked.run

    @functools.cached_property
    def existing(self) -> Training | None:
        """The configuration of the run already in its folder."""
        try:
            return Workdir(self.folder).config()
        except Stop:  # training will report it
            return None

    def mistakes(self) -> list[str]:
        """What is wrong with either command, found before anything runs."""
        try:
            wrong, run, _ = self._checked
            evaluation = parse.parse(self.evaluate[1:], evaluation=True)[1]
        except ConfigError as error:
            return [str(error)]
        if run is not None:
            wrong = wrong + _mistakes_of_building(built_from(run))
        try:
            judging.load(evaluation)
        except ConfigError as error:
            return wrong + str(error).splitlines()
        return wrong

    def other_fields(self) -> list[str]:
        """Fields in which the run already in this folder differs from the job."""
        if self.existing is None:
            return []
        fields = flat(self.config)
        made = [name for name in MADE if not fields[name]]
        return differences(self.existing, self.config, (*FREE, *made))

    @property
    def log(self) -> Path:
        """Where its commands print."""
        return self.folder / "sweep.log"

    def status(self) -> dict:
        try:
            return Workdir(self.folder).read_status()
        except Stop:
            return {}

    @property
    def left_nothing(self) -> str:
        """What is said of a command that succeeded and has to be run again."""
        return f"exited with 0 but left no result in {self.folder}"

    def next(self) -> str | None:
        """The next command, train or evaluate; None if both are done."""
        status = self.status()
        if status.get("state") != "done" or status.get("step") != self.config.steps:
            return "train"
        return None if self._evaluated() == self._evaluation_of(status) else "evaluate"

    def mark_evaluated(self) -> None:
        write_atomically(self._mark, self._evaluation_of(self.status()))

    def last_metrics(self) -> dict:
        """The newest line with a speed."""
        try:
            lines = read_metrics(self.folder / "metrics.jsonl")
        except Stop:
            return {}
        return next((line for line in reversed(lines) if "tokens_per_second" in line), {})

    @property
    def picture(self) -> Path | None:
        """The main picture of its evaluation, if one was drawn."""
        places = (self.folder / "plots" / f"{name}.png" for name in ("answers", "same_token"))
        return next((place for place in places if place.is_file()), None)

    def cells_done(self) -> tuple[int, int] | None:
        """Finished cells of its evaluation and all of them."""
        return progress.read(self.folder / "eval")

    @property
    def _mark(self) -> Path:
        return self.folder / "eval" / "sweep.json"

    def _evaluated(self) -> str | None:
        rows = self.folder / "eval" / "curves.csv"
        return (
            self._mark.read_text(encoding="utf-8")
            if self._mark.exists() and rows.exists()
            else None
        )

    def _evaluation_of(self, status: dict) -> str:
        """The weights, the fields and the result, since others may evaluate the run as well."""
        curves = self.folder / "eval" / "curves.csv"
        facts = {
            "digest": status.get("digest"),
            "fields": self.evaluation,
            "curves": hashlib.sha256(curves.read_bytes()).hexdigest() if curves.exists() else None,
        }
        return json.dumps(facts, default=str) + "\n"


def jobs_of(
    sweep: Mapping[str, Any], workdir: Path, extra: Sequence[tuple[str, Any]] = ()
) -> list[Job]:
    """The jobs of a sweep file; `extra` fields are set in all of them."""
    _check_keys(sweep)
    jobs: dict[str, Job] = {}
    for chosen in sweep.get("grid", []):
        fields = dict(chosen)
        odd = [name for name in fields if not isinstance(name, str)]
        if odd:
            raise ConfigError(f"a job of the grid has the field {odd[0]!r}; a field is a name")
        for name, value in extra:
            if name in fields:
                raise ConfigError(
                    f"--config.{name}={value}, and the grid sets {name}: every job would be the "
                    "same under its own name; change the grid"
                )
        recipe = fields.pop("recipe", sweep.get("recipe"))
        if not recipe:
            raise ConfigError("a job of the grid has no recipe, and the sweep names none")
        own = {field: fields.pop(field) for field in list(fields) if field.startswith(EVALUATION)}
        evaluation = {field.removeprefix(EVALUATION): value for field, value in own.items()}
        evaluation = tuple((dict(sweep.get("evaluation", {})) | evaluation).items())
        name = name_of({field: value for field, value in chosen.items() if field not in own})
        if name in jobs:
            raise ConfigError(f"two jobs of the grid are called {name!r}")
        group = {} if os.environ.get("WANDB_RUN_GROUP") else {"wandb.group": workdir.resolve().name}
        every = group | dict(sweep.get("fields", {}))
        merged = tuple((every | fields | dict(extra)).items())
        jobs[name] = Job(name, workdir / name, _recipe(str(recipe)), merged, evaluation)
    if not jobs:
        raise ConfigError("the grid has no job")
    return list(jobs.values())


def built_from(run: Training) -> str:
    """The fields that an encoding is built from, as text."""
    fields = schema.as_fields(run)
    return json.dumps({name: fields[name] for name in BUILT_FROM})


def run_of(fields: str) -> Training:
    """A run with these fields and the usual text."""
    return schema.from_fields(json.loads(fields) | {"data": {"source": "stdlib"}})


@functools.cache
def _mistakes_of_building(fields: str) -> list[str]:
    """Built once for all jobs with the same fields."""
    from posenc_jax.config import building

    return building.mistakes(run_of(fields))


@functools.cache
def _some_fit(extensions: str, fields: str) -> bool:
    from posenc_jax.evaluation import planning

    return planning.some_fit(extensions, run_of(fields))


def check(jobs: Sequence[Job]) -> None:
    """Refuses mistakes in any job, and folders that hold other runs, all at once."""
    refuse_mistakes(jobs)
    others = {job.name: lines for job in jobs if (lines := job.other_fields())}
    if others:
        raise OtherConfig(
            _listed(others, "of the jobs' folders hold runs of another configuration")
            + "\nuse another --workdir, or move those folders away"
        )


def refuse_mistakes(jobs: Sequence[Job]) -> None:
    wrong = {job.name: lines for job in jobs if (lines := job.mistakes())}
    if wrong:
        raise ConfigError(_listed(wrong, "of the jobs cannot be run"))


def _listed(problems: Mapping[str, Sequence[str]], what: str, most: int = 10) -> str:
    """Jobs with the same problems on one line."""
    alike: dict[tuple, list[str]] = {}
    for name, lines in problems.items():
        alike.setdefault(tuple(lines), []).append(name)
    listed = [f"{len(problems)} {what}"]
    for lines, names in list(alike.items())[:most]:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        listed.append(f"  {', '.join(names[:3])}{more}: " + "; ".join(lines))
    if len(alike) > most:
        listed.append(f"  and {len(alike) - most} others")
    return "\n".join(listed)


def _check_keys(sweep: Mapping[str, Any]) -> None:
    if not isinstance(sweep, Mapping):
        raise ConfigError(
            "get_config() of a sweep file returns a dict with a grid, such as those of "
            f"configs/sweeps/; got {type(sweep).__name__}"
        )
    for key in sweep:
        try:
            known("key of a sweep file", key, KEYS)
        except ValueError as error:
            raise ConfigError(str(error)) from error
    for key in ("fields", "evaluation", "slurm"):
        if not isinstance(sweep.get(key, {}), Mapping):
            raise ConfigError(f"{key} of a sweep file is a dict; got {sweep[key]!r}")
    grid = sweep.get("grid", [])
    if not isinstance(grid, Sequence) or not all(isinstance(job, Mapping) for job in grid):
        raise ConfigError("the grid of a sweep file is a list of jobs, as axis() makes it")


def name_of(fields: dict[str, Any]) -> str:
    """`rope-s0`: from the job's own fields alone, so a growing grid renames nothing, and without
    the label, which may change."""
    words = []
    for field, value in fields.items():
        if field == "label":
            continue
        if field == "recipe":
            file, _, size = str(value).partition(":")
            words.insert(0, Path(file).stem + (f"-{size}" if size else ""))
        elif field in SHORT:
            words.append(f"{SHORT[field]}{value}")
        else:
            words.append(f"{field.rpartition('.')[2]}={value}")
    name = re.sub(r"[^\w.=+-]+", "_", "-".join(words)).strip("._") or "run"
    if len(name) > 100:  # file names are limited
        name = f"{name[:90]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def _recipe(recipe: str) -> str:
    """The path as written, or in the project's own folder."""
    file, colon, size = recipe.partition(":")
    for path in (Path(file), ROOT / file):
        if path.is_file():
            return f"{path}{colon}{size}"
    raise ConfigError(f"a job of the grid has the recipe {recipe!r}, and there is no such file")


def _flags(fields: Sequence[tuple[str, Any]], group: str = "--config") -> list[str]:
    return [f"{group}.{name}={value}" for name, value in fields]
