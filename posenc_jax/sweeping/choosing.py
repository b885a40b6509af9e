"""Choose rates before seeds: every scheme is tuned over the same small grid, at L alone.

`"choose": Rates()` in a sweep file asks for it. A scheme is a job without its seed. The runs that
choose are ordinary runs of its first seed; what they measured is read from their folders, so a
killed sweep goes on with the same choices.
"""

import csv
import dataclasses
import functools
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax import errors
from posenc_jax.checks import positive
from posenc_jax.config import Training
from posenc_jax.config.compare import experiment, without_seed
from posenc_jax.data.sources import Origin
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.errors import ConfigError, Stop
from posenc_jax.files import write_atomically
from posenc_jax.runs.metrics import read_metrics
from posenc_jax.sweeping.jobs import Job, built_from, name_of, run_of

FILE = "choices.csv"  # in the folder of the sweep: every rate that was tried
COLUMNS: Sequence[str] = (
    "scheme,run,times,learning_rate,encoding_rate,choose_loss,choose_bpb,shipped,chosen,edge"
).split(",")
CHOSEN = ("learning_rate", "encoding_rate")  # fields that a tuned sweep decides


@dataclasses.dataclass(frozen=True)
class Rates:
    """The rates that every scheme is tried at, in this order.

    First the learning rate, in multiples of the recipe's, at the first encoding rate; one more
    where the best is at the edge. Then, at the best one, the other encoding rates, for schemes with
    trained arrays. The recipe's own rates are always among those tried.
    """

    times: tuple[float, ...] = (1 / 3, 1, 3)
    encoding: tuple[float, ...] = (1, 16)

    def __post_init__(self):
        for name in ("times", "encoding"):
            values = getattr(self, name)
            if not isinstance(values, (tuple, list)):
                raise ValueError(f"{name} in Rates must be several numbers; got {values!r}")
            for value in values:
                positive(f"each of {name} in Rates", value)
        if len(self.times) < 2 or list(self.times) != sorted(set(self.times)):
            raise ValueError(f"times in Rates must be two numbers or more, ascending; {self.times}")
        if not self.encoding or len(set(self.encoding)) < len(self.encoding):
            raise ValueError(
                f"encoding in Rates must be one number or more, each once; got {self.encoding}"
            )

    def further(self, best: int) -> float | None:
        """The multiple beyond the edge; None where the best is within."""
        if best == 0:
            return self.times[0] ** 2 / self.times[1]
        if best == len(self.times) - 1:
            return self.times[-1] ** 2 / self.times[-2]
        return None


@dataclasses.dataclass(frozen=True)
class Trial(Job):
    """A run that only chooses: it is trained and not evaluated."""

    ends_well = (errors.DONE, errors.NOT_FINITE)  # a rate that is too high is a result

    @property
    def _evaluated_later(self) -> list[str]:
        return []

    @property
    def left_nothing(self) -> str:
        return "measured no choose_loss: the third split is too short; raise data.choose_fraction"

    def next(self) -> str | None:
        return "train" if self.measured() is None else None

    def measured(self) -> dict[str, float] | None:
        """Its loss at L on the third split, infinite where training was not finite; None: not
        known yet."""
        status = self.status()
        if status.get("code") == errors.NOT_FINITE:
            return {"choose_loss": math.inf}
        if (status.get("state"), status.get("step")) != ("done", self.config.steps):
            return None
        try:
            lines = read_metrics(self.folder / "metrics.jsonl")
        except Stop:
            return None
        last = next((line for line in reversed(lines) if "choose_loss" in line), {})
        if last.get("step") != self.config.steps:
            return None
        # A loss that is not finite is null there.
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
    """The jobs of a grid that differ in the seed alone, and the rates they are tried at."""

    def __init__(self, seeds: Sequence[Job], rates: Rates):
        config = seeds[0].config
        self.name, self.seeds, self.rates = without_seed(seeds[0].name), list(seeds), rates
        self.trained = has_trained_arrays(config)
        # The recipe's rates, which the command line may have set.
        self.shipped = Point(_rounded(config.learning_rate), float(config.encoding_rate))
        self._trials: dict[Point, Trial] = {}

    def stages(self) -> tuple[list[Point], Point | None]:
        """The rates to try that are known so far, each once, and the best once all are measured;
        none where no loss is finite."""
        first = float(self.rates.encoding[0]) if self.trained else self.shipped.encoding_rate
        tried = [self._point(times, first) for times in self.rates.times]
        others = [] if self.shipped in tried else [self.shipped]
        best = self._lowest(tried)
        if best is None:
            return _once(tried + others), None
        further = self.rates.further(tried.index(best))
        if further is not None:
            tried.append(self._point(further, first))
            best = self._lowest(tried)
            if best is None:
                return _once(tried + others), None
        if self.trained:
            more = [Point(best.learning_rate, float(rate)) for rate in self.rates.encoding[1:]]
            others += more
        every = _once(tried + others)
        best = self._lowest(every)
        return every, None if best is None or self.trial(best).loss == math.inf else best

    def hopeless(self) -> bool:
        """Whether all rates are measured and no loss is finite."""
        return all(self.trial(point).loss == math.inf for point in self.stages()[0])

    def trial(self, point: Point) -> Trial:
        """The run of the first seed that is tried at these rates."""
        if point not in self._trials:
            self._trials[point] = self._at(Trial, self.seeds[0], point)
        return self._trials[point]

    def final(self, point: Point) -> list[Job]:
        """Its seeds at the chosen rates."""
        return [self._at(Job, job, point) for job in self.seeds]

    def times(self, point: Point) -> float:
        """The learning rate in multiples of the recipe's."""
        return float(f"{point.learning_rate / self.shipped.learning_rate:.3g}")

    def _point(self, times: float, encoding_rate: float) -> Point:
        return Point(_rounded(times * self.shipped.learning_rate), encoding_rate)

    def _lowest(self, points: Sequence[Point]) -> Point | None:
        """The one with the lowest loss, the first of equals; None where a loss is not known."""
        losses = [self.trial(point).loss for point in points]
        known = [loss for loss in losses if loss is not None]
        return points[losses.index(min(known))] if len(known) == len(points) else None

    def _at(self, kind: type, job: Job, point: Point) -> Any:
        """A job at these rates, under a name that says them."""
        rates = point._asdict()
        if not self.trained:
            del rates["encoding_rate"]  # which would have no effect
        words = {field: f"{rate:g}" for field, rate in rates.items()}
        name = f"{job.name}-{name_of(words)}"
        fields = tuple((dict(job.fields) | rates).items())
        return kind(name, job.folder.with_name(name), job.recipe, fields, job.evaluation)


def _once(points: Sequence[Point]) -> list[Point]:
    return list(dict.fromkeys(points))


def _rounded(rate: float) -> float:
    """Three times 0.003 is 0.009 in names too."""
    return float(f"{float(rate):.6g}")


class Plan:
    """The jobs of a sweep, as far as they are known now."""

    def __init__(self, grid: Sequence[Job], workdir: Path, rates: Rates | None = None):
        self.grid, self.workdir = list(grid), workdir
        self.schemes = [] if rates is None else schemes(self.grid, rates)

    def jobs(self) -> list[Job]:
        """Trials, then the seeds of schemes that were tuned, in the order of the grid.

        A trial at the chosen rates is the run of its seed and is evaluated with it.
        """
        if not self.schemes:
            return self.grid
        trials: list[Job] = []
        final: dict[str, Job] = {}  # by the name in the grid
        for scheme in self.schemes:
            points, chosen = scheme.stages()
            trials += [scheme.trial(point) for point in points]
            if chosen is not None:
                pairs = zip(scheme.seeds, scheme.final(chosen), strict=True)
                final |= {own.name: job for own, job in pairs}
        seeds = [final[job.name] for job in self.grid if job.name in final]
        named = {job.name for job in seeds}
        return [*(trial for trial in trials if trial.name not in named), *seeds]

    def more(self) -> list[Job]:
        """The jobs known now, once the table of what was tried is written."""
        self.write()
        return self.jobs()

    def open(self) -> list[Scheme]:
        """Schemes whose rates are not chosen yet."""
        return [scheme for scheme in self.schemes if scheme.stages()[1] is None]

    def write(self) -> None:
        table = io.StringIO()
        writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for scheme in self.schemes for row in rows(scheme))
        write_atomically(self.workdir / FILE, table.getvalue())


def rows(scheme: Scheme) -> list[dict[str, Any]]:
    """A row for every rate that a scheme was tried at, or will be."""
    points, chosen = scheme.stages()
    learning_rates = [point.learning_rate for point in points]
    edges = (min(learning_rates), max(learning_rates))
    made = []
    for point in points:
        trial = scheme.trial(point)
        measured = trial.measured() or {}
        made.append(
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
    return made


def read(workdir: Path) -> list[dict[str, Any]]:
    """The table in the folder of a sweep; nothing where there is none. A loss not known is nan."""
    path = workdir / FILE
    if not path.exists():
        return []
    numbers = ("times", *Point._fields, "choose_loss", "choose_bpb")
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return [
                {name: row[name] for name in COLUMNS}
                | {name: float(row[name] or "nan") for name in numbers}
                for row in csv.DictReader(stream)
            ]
    except (KeyError, TypeError, ValueError) as error:
        raise Stop(f"{path} cannot be read: {error!r}; the sweep's command writes it") from error


def chosen(folder: Path) -> dict[str, dict[str, float]]:
    """The rates that a tuned sweep chose, by scheme, as fields for the grid of another sweep."""
    rows = read(Path(folder))
    if not rows:
        raise Stop(f"{folder} has no {FILE}; a sweep with choose writes it")
    undecided = {row["scheme"] for row in rows} - {row["scheme"] for row in rows if row["chosen"]}
    if undecided:
        raise Stop(f"{folder} has not chosen the rates of {', '.join(sorted(undecided))} yet")
    return {
        # A run is named after the rates that have an effect on it: 1, not 1.0, here too.
        row["scheme"]: {n: json.loads(f"{row[n]:g}") for n in CHOSEN if f"{n}=" in row["run"]}
        for row in rows
        if row["chosen"]
    }


def schemes(jobs: Sequence[Job], rates: Rates) -> list[Scheme]:
    """The jobs of a grid by scheme."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(json.dumps(experiment(job.config), default=str), []).append(job)
    return [Scheme(own, rates) for own in alike.values()]


def mistakes(content: Mapping[str, Any], jobs: Sequence[Job]) -> list[str]:
    """What stands against choosing rates in this sweep."""
    rates = content["choose"]
    if not isinstance(rates, Rates):
        return [
            "choose of a sweep file is a Rates() of posenc_jax.sweeping.choosing; got "
            f"{type(rates).__name__}"
        ]
    set_twice = {name for job in content["grid"] for name in CHOSEN if name in job}
    wrong = [f"the grid sets {name}, which choose decides" for name in sorted(set_twice)]
    without = [job.name for job in jobs if not _has_third_split(job.config.data.source)]
    if without:
        wrong.append(
            f"{without[0]} has no third split to choose on: set data.choose_fraction above 0 in "
            "fields, such as 0.1"
        )
    return wrong


def _has_third_split(origin: Origin) -> bool:
    if not isinstance(origin, Tokens):
        return getattr(origin, "choose_fraction", 0) > 0
    from posenc_jax.data.corpora import card_of

    card = card_of(origin.folder)
    return card is not None and card["splits"]["choose"]["tokens"] > 0


def has_trained_arrays(config: Training) -> bool:
    return _trained_arrays(built_from(config))


@functools.cache
def _trained_arrays(fields: str) -> bool:
    """Built once for all jobs with the same fields."""
    import jax

    from posenc_jax.config import building
    from posenc_jax.encoding import trained_mask

    built = building.plain(run_of(fields), jax.random.key(0))
    return any(jax.tree.leaves(trained_mask(built)))


def checked_rates(content: Mapping[str, Any], jobs: Sequence[Job]) -> Rates | None:
    """What `choose` of a sweep file asks for; None where it has none."""
    if "choose" not in content:
        return None
    wrong = mistakes(content, jobs)
    if wrong:
        raise ConfigError("; ".join(wrong))
    return content["choose"]
