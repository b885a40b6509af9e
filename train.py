"""python train.py --config=configs/rope.py --workdir=DIR [--config.FIELD=VALUE ...]

Trains a model from a configuration and writes a run to DIR. The same command resumes it, or reports
that it is done; so does --workdir=DIR alone, with the configuration saved there. The recipe may be
followed by a size: --config=configs/rope.py:small (tiny, small, base, 125m). Fields are listed
below; for example:

  --config.train_length=256 --config.model.width=256 --config.seed=1 --config.data.source=text
  --config.data.path='books/*.txt' --config.encoding.base=500000

--evaluate=configs/eval.py [--evaluate.FIELD=VALUE ...] then evaluates it, in the same wandb run.
With --train_only it only checks before training that this evaluation is possible.
"""

import sys
from pathlib import Path

from posenc_jax import backend, command, lineage, terminal, validation
from posenc_jax.configuration import Config
from posenc_jax.evaluation import judging
from posenc_jax.runs.workdir import Workdir
from posenc_jax.tracking import environment

BUILT = ("--config.encoding.", "--config.extension.")  # fields that only building can check


def main(argv: list[str]) -> int:
    argv, evaluation_words = command.apart(argv)
    argv = ["--train_only" if word == "--train-only" else word for word in argv]
    flags, config = command.read(argv, __doc__ or "", resumes=True, define=command.train_only)
    evaluation = command.read_evaluation(evaluation_words)
    workdir = flags.workdir and environment.workdir_of(flags.workdir)
    builds = any(word.startswith(BUILT) for word in argv)
    return terminal.code_of(lambda: run(workdir, config, builds, evaluation, flags.train_only))


def run(
    workdir: str | None,
    config: Config,
    builds: bool,
    evaluation: Config | None,
    train_only: bool,
) -> int:
    existing = Workdir(workdir).config() if workdir else None
    problems, buildable, missing_files = validation.judge(config, existing)
    if problems and builds and buildable is not None:  # without problems, training builds it
        from posenc_jax import building

        problems += building.mistakes(buildable)
    if not workdir:
        problems.append("--workdir is missing; give the folder of the run")
    else:
        problems += validation.mistakes_in_workdir(workdir)
    if evaluation is not None:
        problems += validation.validate_evaluation(evaluation)
    if evaluation is not None and config.distributed and not train_only:
        problems.append("--evaluate needs a single process; evaluate a distributed run afterwards")
    if problems or not workdir:
        command.refuse(problems + missing_files)
    config = lineage.resolved(config, existing)
    backend.configure()
    if evaluation is not None:
        return run_both(config, evaluation, Path(workdir), train_only)
    from posenc_jax.training.loop import train

    return train(config, Path(workdir))


def run_both(config: Config, evaluation: Config, workdir: Path, train_only: bool) -> int:
    problems = judging.mistakes_ahead(evaluation, config)
    if problems:
        command.refuse(problems)
    from posenc_jax import programs

    if train_only:
        return programs.train_readable(config, evaluation, workdir)
    return programs.train_and_evaluate(config, evaluation, workdir)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
