"""python train.py --config=configs/rope.py --workdir=DIR [--config.FIELD=VALUE ...]

Trains a model from a configuration and writes a run to DIR. The same command resumes it, or reports
that it is done; so does --workdir=DIR alone, with the configuration saved there. The recipe may be
followed by a size: --config=configs/rope.py:small (tiny, small, base, 125m). Fields are listed
below; for example:

  --config.train_length=256 --config.model.width=256 --config.seed=1 --config.data.source=text
  --config.data.path='books/*.txt' --config.encoding.base=500000

--evaluate=configs/eval.py [--evaluate.FIELD=VALUE ...] then evaluates it, in the same wandb run.
"""

import sys
from pathlib import Path

from posenc_jax import config
from posenc_jax.config.check import mistakes_in_evaluation
from posenc_jax.config.environment import workdir_of
from posenc_jax.config.flags import parse_evaluation, parse_flags, refuse, without_evaluation
from posenc_jax.config.schema import ConfigDict
from posenc_jax.evaluation import validate
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime import backend, terminal
from posenc_jax.runtime.errors import ConfigError

BUILT = ("--config.encoding.", "--config.extension.")  # fields that only building can check


def main(argv: list[str]) -> int:
    argv, evaluating = without_evaluation(argv)
    flags, recipe = parse_flags(argv, __doc__ or "", resumes=True)
    evaluation = parse_evaluation(evaluating)
    chosen = any(word.startswith(BUILT) for word in argv)
    return terminal.code_of(lambda: run(flags.workdir, recipe, chosen, evaluation))


def run(
    workdir: str | None, recipe: ConfigDict, chosen: bool, evaluation: ConfigDict | None
) -> int:
    workdir = workdir and workdir_of(workdir)
    more = [] if workdir else ["--workdir is missing; give the folder of the run"]
    if evaluation is not None:
        more += mistakes_in_evaluation(evaluation)
        if recipe.distributed or evaluation.distributed:
            more.append("--evaluate is for one process; evaluate a distributed run afterwards")
    saved = Workdir(workdir).config() if workdir else None
    backend.configure()
    try:
        training = config.load(recipe, saved, more=more, build=chosen)
        asked = None if evaluation is None else validate.load(evaluation, training)
    except ConfigError as error:
        refuse(str(error).splitlines())
    assert workdir
    if asked is not None:
        from posenc_jax.programs import train_and_evaluate

        return train_and_evaluate(training, asked, Path(workdir))
    from posenc_jax.training.loop import train

    return train(training, Path(workdir))


if __name__ == "__main__":
    sys.exit(terminal.program(main))
