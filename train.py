"""python train.py --config=configs/rope.py --workdir=DIR [--config.FIELD=VALUE ...]

Trains a model from a configuration and leaves a run in DIR. The same command resumes it, or reports
that it is done; so does --workdir=DIR alone, with the configuration kept there. A size may follow
the recipe: --config=configs/rope.py:small (tiny, small, base, 125m). Fields are listed below, for
example:

  --config.train_length=256 --config.model.width=256 --config.seed=1 --config.data.source=text
  --config.data.path='books/*.txt' --config.encoding.base=500000
"""

import sys
from pathlib import Path

from posenc_jax import command, lineage, terminal, validation
from posenc_jax.configuration import Config
from posenc_jax.runs.workdir import Workdir
from posenc_jax.tracking import environment

CHOSEN = ("--config.encoding.", "--config.extension.")  # only building can check these


def main(argv: list[str]) -> int:
    flags, config = command.read(argv, __doc__ or "", resumes=True)
    workdir = flags.workdir and environment.workdir_of(flags.workdir)
    chosen = any(word.startswith(CHOSEN) for word in argv)
    return terminal.code_of(lambda: run(workdir, config, chosen))


def run(workdir: str | None, config: Config, chosen: bool) -> int:
    begun = Workdir(workdir).config() if workdir else None
    problems, buildable = validation.judge(config, begun)
    if problems and chosen and buildable is not None:  # else training begins by building it
        from posenc_jax import building

        problems += building.mistakes(buildable)
    if not workdir:
        problems.append("--workdir is missing; give the folder of the run")
    if problems or not workdir:
        command.refuse(problems)
    config = lineage.resolved(config, begun)

    from posenc_jax import backend

    backend.configure()
    from posenc_jax.training.loop import train

    return train(config, Path(workdir))


if __name__ == "__main__":
    sys.exit(terminal.program(main))
