"""Choosing rates: which are tried, what is decided of them, and that folders alone remember it."""

import json
import math
import shlex

import pytest
from launchers import Pretend, leave_result

from posenc_jax.config.compare import without_seed
from posenc_jax.runs.metrics import Metrics
from posenc_jax.runtime import errors
from posenc_jax.runtime.errors import ConfigError, Stop
from posenc_jax.runtime.files import read_csv
from posenc_jax.sweeping import grid
from posenc_jax.sweeping.jobs import jobs_of
from posenc_jax.sweeping.rates import CHOICES_FILE, Plan, Rates, Trial, checked_rates, chosen
from posenc_jax.sweeping.run import Scheduler, run_plan
from scripts.sweep import main

FIELDS = {"steps": 4, "warmup_steps": 1, "data.choose_fraction": 0.1}


def content(names=("rope",), seeds=2, **more):
    recipes = grid.axis("recipe", [f"configs/{name}.py" for name in names])
    made = {"grid": grid.product(grid.axis("seed", range(seeds)), recipes), "choose": Rates()}
    return made | {"fields": FIELDS, "evaluation": {"multiples": "1,2"}} | more


def plan_of(made, workdir):
    jobs = jobs_of(made, workdir)
    return Plan(jobs, workdir, checked_rates(made, jobs))


class Measuring(Pretend):
    """Its trainings end with the loss that a function of both rates gives; `most` of them."""

    def __init__(self, loss, codes=None, most=10**9):
        super().__init__(codes)
        self.loss, self.most = loss, most
        self.commands = []  # names, and whether they evaluate

    def code(self, name, command, folder):
        self.commands.append((name, any(word.startswith("--evaluate") for word in command)))
        code = self.codes.get(name, errors.DONE) if len(self.started) <= self.most else errors.FAULT
        if code == errors.DONE:
            words = [word for word in command if word.startswith("--config.")]
            given = dict(word.removeprefix("--config.").split("=") for word in words)
            rates = float(given["learning_rate"]), float(given.get("encoding_rate", 1))
            metrics = Metrics(folder / "metrics.jsonl", 0)
            metrics.write({"step": 2, "choose_loss": 9.0})
            metrics.write({"step": 4, "choose_loss": self.loss(*rates)})
            leave_result(folder, command, self.steps)
        elif not (folder / "status.json").exists():  # a failed evaluation leaves a run as it is
            status = {"state": "failed", "code": code, "step": 4}
            (folder / "status.json").write_text(json.dumps(status))
        return code


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("PAUSE", "POLL", "RETRIES"):
        monkeypatch.setattr(f"posenc_jax.sweeping.run.{name}", 0)

    def make(made, loss, **options):
        plan, launcher = plan_of(made, tmp_path), Measuring(loss, **options)
        one = Scheduler(plan, launcher)
        code = one.run([], lambda _: None)
        return code, launcher.commands, plan, one

    return make


def table(folder):
    return read_csv(folder / CHOICES_FILE)


def near(rate, encoding_rate=1.0):
    """A loss that is lowest at these rates."""
    return lambda own, encoding=1.0: (
        abs(math.log(own / rate)) + abs(math.log(encoding / encoding_rate))
    )


def test_a_scheme_without_trained_arrays_is_tried_at_three_rates(run, tmp_path):
    code, started, plan, _ = run(content(), near(3e-3))
    assert code == errors.DONE
    assert list(dict(started)) == [
        "rope-s0-learning_rate=0.001",
        "rope-s0-learning_rate=0.003",
        "rope-s0-learning_rate=0.009",
        "rope-s1-learning_rate=0.003",
    ]
    evaluated = {name for name, evaluates in started if evaluates}
    assert evaluated == {f"rope-s{seed}-learning_rate=0.003" for seed in range(2)}
    jobs = {job.name: "--config.wandb.job=tuning" in job.command for job in plan.jobs()}
    assert jobs == {name: name not in evaluated for name in dict(started)}
    rows = table(tmp_path)
    assert [float(row["times"]) for row in rows] == [0.333, 1.0, 3.0]
    assert [row["chosen"] for row in rows] == ["", "yes", ""] == [row["shipped"] for row in rows]
    assert not any(row["edge"] for row in rows)


@pytest.mark.parametrize(("best", "beyond"), [(1e-9, 0.000333333), (1.0, 0.027)])
def test_a_best_rate_at_the_edge_adds_one_more(run, tmp_path, best, beyond):
    run(content(seeds=1), near(best))
    rows = table(tmp_path)
    assert len(rows) == 4 and float(rows[-1]["learning_rate"]) == beyond
    assert (rows[-1]["chosen"], rows[-1]["edge"]) == ("yes", "yes")


def test_encoding_rates_are_tried_at_the_best_learning_rate_and_both_are_handed_on(run, tmp_path):
    """The recipe's own encoding rate, 4, is tried as shipped."""
    with pytest.raises(Stop, match=r"no choices\.csv, which a sweep with `choose` writes"):
        chosen(tmp_path)
    code, started, _, one = run(content(["rope", "t5"]), near(9e-3, 16))
    of_t5 = [row for row in table(tmp_path) if row["scheme"] == "t5"]
    rows = {(float(r["learning_rate"]), float(r["encoding_rate"])): r for r in of_t5}
    assert set(rows) == {(1e-3, 1), (3e-3, 1), (9e-3, 1), (27e-3, 1), (9e-3, 16), (3e-3, 4)}
    assert [key for key, row in rows.items() if row["shipped"]] == [(3e-3, 4)]
    assert [key for key, row in rows.items() if row["chosen"]] == [(9e-3, 16)]
    jobs = [p.job.name for p in one.all if p.job.name.startswith("t5")]
    assert code == errors.DONE and len(jobs) == 7  # six trials, one of them a seed, and another
    name = "t5-s1-learning_rate=0.009-encoding_rate=16"
    assert (name, True) in started
    rates = chosen(tmp_path)
    t5 = {"learning_rate": 9e-3, "encoding_rate": 16}
    assert rates == {"rope": {"learning_rate": 9e-3}, "t5": t5}
    jobs = jobs_of({"grid": [{"recipe": "configs/t5.py", "seed": 1} | rates["t5"]]}, tmp_path)
    assert jobs[0].name == name


def test_rates_that_are_not_finite_are_the_worst_and_end_nothing(run, tmp_path):
    """A training that diverges, and one whose loss is no number at its end."""
    lowest, codes = near(3e-3), {"rope-s0-learning_rate=0.009": errors.NOT_FINITE}

    def loss(own, encoding=1.0):
        return math.nan if own < 2e-3 else lowest(own, encoding)

    code, started, _, _ = run(content(), loss, codes=codes)
    assert code == errors.DONE and ("rope-s1-learning_rate=0.003", True) in started
    rows = table(tmp_path)
    assert [row["choose_loss"] for row in rows] == ["nan", "0.0", "inf"]
    assert [row["chosen"] for row in rows] == ["", "yes", ""]
    assert run(content(), loss, codes=codes)[1] == []


def test_no_rate_is_chosen_if_none_is_finite(run, tmp_path, capsys):
    """Nor handed on; the sweep says so, and others go on."""

    def loss(own, encoding=1.0):
        return math.nan if encoding else 0.0

    code, started, plan, _ = run(content(), loss)
    assert code == errors.DONE and not any(evaluates for _, evaluates in started)
    (scheme,) = plan.open()
    assert scheme.hopeless() and not any(row["chosen"] for row in table(tmp_path))
    assert len(table(tmp_path)) == 4  # one rate lower, too
    with pytest.raises(Stop, match="has not chosen the rates of rope"):
        chosen(tmp_path)
    assert run_plan(plan, Measuring(loss)) == errors.NOT_FINITE
    said = "".join(capsys.readouterr())
    assert "rope: no rate was finite, so 2 seeds did not run" in said


def test_a_rate_that_is_tried_twice_is_one_run(run, tmp_path):
    """The recipe's own rate is the one beyond the edge."""
    rates = Rates(times=(0.25, 0.5))
    run(content(choose=rates), near(3e-3))
    names = [row["run"] for row in table(tmp_path)]
    assert len(names) == len(set(names)) == 3
    assert [row["shipped"] for row in table(tmp_path)] == ["", "", "yes"]


def test_one_rate_has_no_edge():
    assert Rates(times=(1,)).further(best=0) is None


def test_a_trial_that_fails_leaves_its_scheme_open_and_others_go_on(run, tmp_path):
    codes = {"rope-s0-learning_rate=0.001": errors.IO}
    code, started, plan, _ = run(content(["rope", "alibi"]), near(3e-3), codes=codes)
    assert code == errors.IO and [scheme.name for scheme in plan.open()] == ["rope"]
    assert ("alibi-s1-learning_rate=0.003", True) in started
    assert not any(name.startswith("rope-s1") for name, _ in started)
    with pytest.raises(Stop, match="has not chosen the rates of rope yet"):
        chosen(tmp_path)


def test_without_a_loss_to_choose_by_a_trial_has_failed(run, monkeypatch):
    monkeypatch.setattr(Trial, "measured", lambda self: None)
    code, _, _, one = run(content(), near(3e-3))
    assert code == errors.FAULT
    assert "measured no choose_loss: the third split is too short" in one.all[0].reason


@pytest.mark.parametrize("most", (2, 9, 12))
def test_an_interrupted_sweep_repeats_nothing(run, tmp_path, most):
    made = content(["rope", "t5"])
    _, first, _, _ = run(made, near(9e-3, 16), most=most)
    code, second, _, _ = run(made, near(9e-3, 16))
    code_again, nothing, _, _ = run(made, near(9e-3, 16))
    assert code == errors.DONE == code_again and nothing == []
    done = [*first[:most], *second]
    assert len(done) == len(set(done)) == 10 + 4  # trials and evaluated runs
    assert sum(bool(row["chosen"]) for row in table(tmp_path)) == 2


def test_seeds_vary_slowest_once_rates_are_chosen(run):
    _, _, plan, _ = run(content(["rope", "alibi"], seeds=3), near(3e-3))
    seeds = [job.name for job in plan.jobs() if not isinstance(job, Trial)]
    names = [f"{name}-s{seed}" for seed in range(3) for name in ("rope", "alibi")]
    assert seeds == [f"{name}-learning_rate=0.003" for name in names]


def test_mistakes_in_choose_are_refused_before_any_run(tmp_path):
    twice = [{"recipe": "configs/rope.py", "learning_rate": 1e-3}]
    for change, message in (
        ({"choose": {"learning_rate": [1, 3]}}, r"rates.Rates\(\)"),
        ({"fields": {}}, "rope-s0 has no third split to choose on: set data.choose_fraction"),
        ({"grid": twice}, "the grid sets learning_rate, which choose sets too"),
    ):
        with pytest.raises(ConfigError, match=message):
            plan_of(content() | change, tmp_path)


def test_a_list_says_what_is_known_and_what_is_to_be_chosen(tmp_path, capsys):
    file = tmp_path / "sweep.py"
    file.write_text(
        "from posenc_jax.sweeping.rates import Rates\n"
        "from posenc_jax.sweeping.grid import axis\n"
        "def get_config():\n"
        f"    return {{'recipe': 'configs/rope.py', 'grid': axis('seed', range(2)), "
        f"'fields': {FIELDS!r}, 'choose': Rates()}}\n"
    )
    assert main(["sweep.py", f"--config={file}", f"--workdir={tmp_path / 'w'}", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# s0-learning_rate=0.001: to run" and len(lines) == 7
    for line in (line for line in lines if not line.startswith("#")):
        assert shlex.split(line)[1].endswith("train.py") and "--config.learning_rate=" in line
    assert lines[-1].endswith("2 seeds, once its rates are chosen")


def test_a_chosen_run_waits_for_the_end_of_its_trial(run, monkeypatch):
    """A trial is measured by its files, while its process may still be ending."""
    running, start = set(), Measuring.start

    def slow(self, name, command, log):
        assert name not in running
        running.add(name)
        task, polls = start(self, name, command, log), iter([None] * 5)

        def poll():
            code = next(polls, task.poll()) if name.endswith("=0.003") else task.poll()
            running.discard(name) if code is not None else None
            return code

        return type("Task", (), {"poll": lambda self: poll(), "stop": lambda self: None})()

    monkeypatch.setattr(Measuring, "start", slow)
    code, started, _, _ = run(content(), near(3e-3))
    assert code == errors.DONE and ("rope-s0-learning_rate=0.003", True) in started


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rope-s0-L128", "rope-L128"),
        ("rope-s12", "rope"),
        ("s0-base=1000", "base=1000"),
        ("runs/pre/s0", "runs/pre/"),
        ("runs-s1/rope-s0", "runs/rope"),
        ("s0", "s0"),
        ("shipped-sinus", "shipped-sinus"),
    ],
)
def test_a_seed_is_dropped_from_a_name(name, expected):
    assert without_seed(name) == expected
