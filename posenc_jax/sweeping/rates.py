"""Tune the rates of every scheme over the same small grid, at L, before its seeds run.

`"choose": Rates()` in a sweep file turns this on. A scheme is a job without its seed. Tuning runs
are ordinary runs of the first seed; their losses are read from their folders, so a killed sweep
resumes with the same choices.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.config import Training
from posenc_jax.config.compare import experiment, without_seed
from posenc_jax.data.sources import Origin
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.runtime import errors
from posenc_jax.runtime.errors import ConfigError, Stop
from posenc_jax.runtime.files import read_csv, write_csv
from posenc_jax.sweeping.jobs import Job, name_of

CHOICES_FILE = "choices.csv"  # in the folder of the sweep: every rate tried
CHOICES_COLUMNS: Sequence[str] = (
    "scheme,run,times,learning_rate,encoding_rate,choose_loss,choose_bpb,shipped,chosen,edge"
).split(",")
CHOSEN = ("learning_rate", "encoding_rate")  # fields set by tuning


@dataclasses.dataclass(frozen=True)
class Rates:
    """Rates tried for every scheme, in the order of docs/sweeps.md."""

    times: tuple[float, ...] = (1 / 3, 1, 3)
    encoding: tuple[float, ...] = (1, 16)

    def further(self, best: int) -> float | None:
        """Multiple beyond the edge of the grid; None if the best is not at the edge."""
        if len(self.times) < 2:
            return None
        if best == 0:
            return self.times[0] ** 2 / self.times[1]
        if best == len(self.times) - 1:
            return self.times[-1] ** 2 / self.times[-2]
        return None


@dataclasses.dataclass(frozen=True)
class Trial(Job):
    """A tuning run, trained but not evaluated."""

    ends_well = (errors.DONE, errors.NOT_FINITE)  # divergence at a high rate is a result

    @property
    def command(self) -> list[str]:
        return [*self._train, "--config.wandb.job=tuning"]

    @property
    def no_result(self) -> str:
        return "measured no choose_loss: the third split is too short; raise data.choose_fraction"

    def is_done(self) -> bool:
        return self.measured() is not None

    def measured(self) -> dict[str, float] | None:
        """Loss at L on the third split, infinite if training diverged; None if not known yet."""
        if self.status().get("code") == errors.NOT_FINITE:
            return {"choose_loss": math.inf}
        last = self.last_metrics("choose_loss")
        if not self.is_trained() or last.get("step") != self.config.steps:
            return None
        # metrics.jsonl has null for a loss that is not finite.
        return last if last["choose_loss"] is not None else last | {"choose_loss": math.nan}

    @property
    def loss(self) -> float | None:
        measured = self.measured()
        if measured is None:
            return None
        return measured["choose_loss"] if math.isfinite(measured["choose_loss"]) else math.inf


class Point(NamedTuple):
    learning_rate: float
    encoding_rate: float


class Scheme:
    """Jobs of a grid that differ only in the seed, and the rates tried for them."""

    def __init__(self, seeds: Sequence[Job], rates: Rates):
        config = seeds[0].config
        self.name, self.seeds, self.rates = without_seed(seeds[0].name), list(seeds), rates
        self.trained = has_trained_arrays(config)
        # rates of the recipe or the command line
        self.shipped = Point(_rounded(config.learning_rate), float(config.encoding_rate))
        self._trials: dict[Point, Trial] = {}

    def stages(self) -> tuple[list[Point], Point | None]:
        """Rates to try known so far, and the best once all are measured and one loss is finite."""
        first = float(self.rates.encoding[0]) if self.trained else self.shipped.encoding_rate
        tried = [self._point(times, first) for times in self.rates.times]
        others = [] if self.shipped in tried else [self.shipped]
        best = self._lowest(tried)
        further = None if best is None else self.rates.further(tried.index(best))
        if further is not None:
            tried.append(self._point(further, first))
            best = self._lowest(tried)
        if best is not None and self.trained:
            others += [Point(best.learning_rate, float(rate)) for rate in self.rates.encoding[1:]]
        points = list(dict.fromkeys(tried + others))
        best = self._lowest(points)
        return points, None if best is None or self.trial(best).loss == math.inf else best

    def hopeless(self) -> bool:
        """True if all rates are measured and no loss is finite."""
        return all(self.trial(point).loss == math.inf for point in self.stages()[0])

    def trial(self, point: Point) -> Trial:
        """Tuning run of the first seed at these rates."""
        if point not in self._trials:
            self._trials[point] = self._at(Trial, self.seeds[0], point)
        return self._trials[point]

    def final(self, point: Point) -> list[Job]:
        """Jobs of all seeds at the chosen rates."""
        return [self._at(Job, job, point) for job in self.seeds]

    def times(self, point: Point) -> float:
        """Learning rate as a multiple of the recipe's."""
        return float(f"{point.learning_rate / self.shipped.learning_rate:.3g}")

    def _point(self, times: float, encoding_rate: float) -> Point:
        return Point(_rounded(times * self.shipped.learning_rate), encoding_rate)

    def _lowest(self, points: Sequence[Point]) -> Point | None:
        """Point with the lowest loss, the first on a tie; None if a loss is not known."""
        losses = [self.trial(point).loss for point in points]
        known = [loss for loss in losses if loss is not None]
        return points[losses.index(min(known))] if len(known) == len(points) else None

    def _at(self, kind: type, job: Job, point: Point) -> Any:
        """Job at these rates, which its name includes."""
        rates = point._asdict()
        if not self.trained:
            del rates["encoding_rate"]  # it has no effect
        words = {field: f"{rate:g}" for field, rate in rates.items()}
        name = f"{job.name}-{name_of(words)}"
        fields = tuple((dict(job.fields) | rates).items())
        return kind(name, job.folder.with_name(name), job.recipe, fields, job.evaluation)


def _rounded(rate: float) -> float:
    """Rate rounded for names: 3 * 0.003 is 0.009."""
    return float(f"{float(rate):.6g}")


class Plan:
    """Jobs of a sweep; those of a tuned sweep become known as rates are chosen."""

    def __init__(self, grid: Sequence[Job], workdir: Path, rates: Rates | None = None):
        self.grid, self.workdir = list(grid), workdir
        self.schemes = [] if rates is None else schemes(self.grid, rates)

    def jobs(self) -> list[Job]:
        """Trials, then the seeds of tuned schemes in the order of the grid.

        A trial at the chosen rates becomes the run of its seed.
        """
        if not self.schemes:
            return self.grid
        trials: list[Job] = []
        final: dict[str, Job] = {}  # by name in the grid
        for scheme in self.schemes:
            points, chosen = scheme.stages()
            trials += [scheme.trial(point) for point in points]
            if chosen is not None:
                pairs = zip(scheme.seeds, scheme.final(chosen), strict=True)
                final |= {grid_job.name: job for grid_job, job in pairs}
        seeds = [final[job.name] for job in self.grid if job.name in final]
        final_names = {job.name for job in seeds}
        return [*(trial for trial in trials if trial.name not in final_names), *seeds]

    def open(self) -> list[Scheme]:
        """Schemes without chosen rates so far."""
        return [scheme for scheme in self.schemes if scheme.stages()[1] is None]

    def write(self) -> None:
        """Write the table of rates tried by a tuned sweep."""
        if self.schemes:
            rows = (row for scheme in self.schemes for row in choice_rows(scheme))
            write_csv(self.workdir / CHOICES_FILE, CHOICES_COLUMNS, rows)


def choice_rows(scheme: Scheme) -> list[dict[str, Any]]:
    """One row per rate tried or to be tried for a scheme."""
    points, chosen = scheme.stages()
    learning_rates = [point.learning_rate for point in points]
    edges = (min(learning_rates), max(learning_rates))
    result = []
    for point in points:
        trial = scheme.trial(point)
        measured = trial.measured() or {}
        result.append(
            {
                "scheme": scheme.name,
                "run": trial.name,
                "times": scheme.times(point),
                **point._asdict(),
                "choose_loss": measured.get("choose_loss"),
                "choose_bpb": measured.get("choose_bpb"),
                "shipped": "yes" if point == scheme.shipped else "",
                "chosen": "yes" if point == chosen else "",
                "edge": "yes" if point == chosen and point.learning_rate in edges else "",
            }
        )
    return result


def read_choices(workdir: Path) -> list[dict[str, Any]]:
    """Read the table in the folder of a sweep, empty if there is none; unknown losses are nan."""
    path = workdir / CHOICES_FILE
    if not path.exists():
        return []
    numbers = ("times", *Point._fields, "choose_loss", "choose_bpb")
    try:
        return [
            {name: row[name] for name in CHOICES_COLUMNS}
            | {name: float(row[name] or "nan") for name in numbers}
            for row in read_csv(path)
        ]
    except (AttributeError, KeyError, ValueError) as error:
        raise Stop(f"{path} cannot be read: {error!r}; the sweep's command writes it") from error


def chosen(folder: Path) -> dict[str, dict[str, float]]:
    """Rates chosen by a tuned sweep, by scheme, as fields for the grid of another sweep."""
    rows = read_choices(Path(folder))
    if not rows:
        raise Stop(f"{folder} has no {CHOICES_FILE}, which a sweep with `choose` writes")
    undecided = {row["scheme"] for row in rows} - {row["scheme"] for row in rows if row["chosen"]}
    if undecided:
        raise Stop(f"{folder} has not chosen the rates of {', '.join(sorted(undecided))} yet")
    return {
        # Only rates in the name of a run have an effect on it; 1, not 1.0, keeps names equal.
        row["scheme"]: {n: json.loads(f"{row[n]:g}") for n in CHOSEN if f"{n}=" in row["run"]}
        for row in rows
        if row["chosen"]
    }


def schemes(jobs: Sequence[Job], rates: Rates) -> list[Scheme]:
    """Group the jobs of a grid by scheme."""
    by_experiment: dict[str, list[Job]] = {}
    for job in jobs:
        by_experiment.setdefault(json.dumps(experiment(job.config), default=str), []).append(job)
    return [Scheme(seeds, rates) for seeds in by_experiment.values()]


def checked_rates(content: Mapping[str, Any], jobs: Sequence[Job]) -> Rates | None:
    """The Rates of a sweep file, without mistakes; None if it has none."""
    rates = content.get("choose")
    if "choose" not in content:
        return None
    if not isinstance(rates, Rates):
        raise ConfigError(
            "choose in a sweep file must be a posenc_jax.sweeping.rates.Rates(); got "
            f"{type(rates).__name__}"
        )
    set_twice = {name for job in content["grid"] for name in CHOSEN if name in job}
    problems = [f"the grid sets {name}, which choose sets too" for name in sorted(set_twice)]
    without = [job.name for job in jobs if not _has_third_split(job.config.data.source)]
    if without:
        problems.append(
            f"{without[0]} has no third split to choose on: set data.choose_fraction in fields, "
            "for example to 0.1"
        )
    if problems:
        raise ConfigError("; ".join(problems))
    return rates


def _has_third_split(origin: Origin) -> bool:
    if not isinstance(origin, Tokens):
        return getattr(origin, "choose_fraction", 0) > 0
    from posenc_jax.data.corpora import card_of

    card = card_of(origin.folder)
    return card is not None and card["splits"]["choose"]["tokens"] > 0


def has_trained_arrays(run: Training) -> bool:
    """True if the encoding of a run has trained arrays."""
    import jax

    from posenc_jax.config import building
    from posenc_jax.encoding import trained_mask

    return any(jax.tree.leaves(trained_mask(building.plain(run, jax.random.key(0)))))
