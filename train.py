"""python train.py --config=configs/rope.py --workdir=DIR [--config.FIELD=VALUE ...]

Trains a model from a configuration and writes a run to DIR. The same command resumes it, or reports
that it is done; so does --workdir=DIR alone, with the configuration saved there. The recipe may be
followed by a size: --config=configs/rope.py:small (tiny, small, base, 125m, 1b). Fields are listed
below; for example:

  --config.train_length=256 --config.model.width=256 --config.seed=1 --config.data.source=text
  --config.data.path='books/*.txt' --config.encoding.base=500000

--evaluate=configs/eval.py [--evaluate.FIELD=VALUE ...] then evaluates it, in the same wandb run.
"""

import sys
from pathlib import Path

from posenc_jax import config
from posenc_jax.config.environment import workdir_of
from posenc_jax.config.flags import (
    parse_evaluation,
    parse_flags,
    refuse_missing,
    without_evaluation,
)
from posenc_jax.config.resolve import existing_config
from posenc_jax.runtime import backend, terminal


def main(argv: list[str]) -> int:
    return terminal.code_of(lambda: run(argv))


def run(argv: list[str]) -> int:
    backend.configure()
    argv, evaluating = without_evaluation(argv)
    flags, recipe, problems = parse_flags(argv, __doc__ or "", resumes=True)
    evaluation, more = parse_evaluation(evaluating)
    problems += more
    refuse_missing(problems, recipe, evaluation)
    workdir = Path(workdir_of(flags.workdir)) if flags.workdir else None
    if workdir is None:
        problems.append("--workdir is missing; give the folder of the run")
    asked = None
    if evaluation is not None:
        from posenc_jax.evaluation import check

        asked, more = check.read(evaluation)
        problems += more
        if recipe.distributed or evaluation.distributed:
            problems.append("--evaluate is for one process; evaluate a distributed run afterwards")
    saved = existing_config(workdir) if workdir else None
    training = config.load(recipe, saved, more=problems)
    assert workdir
    if asked is None:
        from posenc_jax.training.loop import train

        return train(training, workdir)
    from posenc_jax import api

    return api.train_and_evaluate(training, asked, workdir)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
