"""python eval_extrapolation.py --workdir=DIR [--config=configs/eval.py] [--config.FIELD=VALUE ...]

Reads the run in DIR, finished or still in training, and writes its perplexity against length:
eval/curves.csv, eval/curves.jsonl, eval/sums.parquet and plots/. Finished cells are cached, an
interrupted evaluation resumes, and evaluations of other texts are kept in the same files under
their own names. Fields are listed below, for example:

  --config.multiples=1,2,4,8,16 --config.extensions=none,ntk,yarn:4,dynamic_ntk
  --config.protocols=same_token,nonoverlap --config.documents=100
  --config.data.source=text --config.data.path='books/*.txt'

--quick evaluates one protocol on few windows, under the name `quick`, within about a minute;
given fields take precedence.
--step=N evaluates that checkpoint, --every_checkpoint all of them.
"""

import argparse
import sys

from posenc_jax.config.flags import parse_flags, refuse_missing
from posenc_jax.config.resolve import refuse_unadopted
from posenc_jax.config.schema import evaluation
from posenc_jax.runtime import backend, terminal
from posenc_jax.runtime.files import expanded

# One protocol and about 20 windows; given fields take precedence.
QUICK = {"name": "quick", "protocols": "same_token", "documents": 10, "windows": 2}


def main(argv: list[str]) -> int:
    return terminal.code_of(lambda: run(argv))


def run(argv: list[str]) -> None:
    backend.configure()
    flags, recipe, problems = parse_flags(argv, __doc__ or "", evaluation=True, define=_define)
    refuse_missing(problems, recipe)
    from posenc_jax import api
    from posenc_jax.evaluation import check, evaluate
    from posenc_jax.runs.subject import run_config
    from posenc_jax.tracking.wandb import log_evaluation

    given = {word.partition("=")[0] for word in argv}
    if flags.quick:
        usual = evaluation()
        free = (name for name in QUICK if f"--config.{name}" not in given)
        recipe.update({name: QUICK[name] for name in free if recipe[name] == usual[name]})
    workdir = expanded(flags.workdir or "")
    refuse_unadopted(workdir)
    if not flags.workdir or not (workdir / "config.json").is_file():
        problems.append(f"--workdir must be the folder of a run; got {flags.workdir!r}")
    if flags.every_checkpoint and flags.step is not None:
        problems.append("--step and --every_checkpoint are mutually exclusive")
    config = check.load(recipe, more=problems)
    steps = None if flags.every_checkpoint else [flags.step]
    evaluated = evaluate.evaluate(config, workdir, steps)
    curves = api.show(workdir, evaluated, chosen="--config.protocols" in given)
    if curves is not None:
        log_evaluation(run_config(workdir), config.wandb.mode, workdir, curves)


def _define(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--step", type=int)
    flags.add_argument("--quick", action="store_true")
    flags.add_argument("--every_checkpoint", "--every-checkpoint", action="store_true")


if __name__ == "__main__":
    sys.exit(terminal.program(main))
