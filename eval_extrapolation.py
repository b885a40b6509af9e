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

import sys
from pathlib import Path

from absl import flags as absl_flags

from posenc_jax import backend, command, configuration, terminal, validation
from posenc_jax.configuration import Config
from posenc_jax.evaluation import judging


def main(argv: list[str]) -> int:
    argv = [word.replace("--every-checkpoint", "--every_checkpoint") for word in argv]
    flags, config = command.read(
        argv,
        __doc__ or "",
        default_config=str(command.EVALUATION),
        define=_define,
    )
    backend.configure()
    if flags.quick:
        usual = configuration.evaluation()
        config.update({n: v for n, v in QUICK.items() if config[n] == usual[n]})
    problems = judging.mistakes(config)
    workdir = Path(flags.workdir or "")
    if not flags.workdir or not (workdir / "config.json").is_file():
        problems.append(f"--workdir must be the folder of a run; got {flags.workdir!r}")
    else:
        problems += validation.mistakes_in_workdir(workdir)
    if flags.every_checkpoint and flags.step is not None:
        problems.append("--step and --every_checkpoint are mutually exclusive")
    if problems:
        command.refuse(problems)
    return terminal.code_of(lambda: run(config, workdir, flags.step, flags.every_checkpoint))


def run(config: Config, workdir: Path, step: int | None, every: bool) -> None:
    from posenc_jax import programs
    from posenc_jax.evaluation import wandb_curves
    from posenc_jax.runs.subject import run_config, saved_steps

    steps = saved_steps(workdir) if every else [step]
    outcome = programs.evaluate_run(config, workdir, steps)
    wandb_curves.log_evaluation(run_config(workdir), config.wandb.mode, workdir, *outcome)


# One protocol and about 20 windows; given fields take precedence.
QUICK = {"name": "quick", "protocols": "same_token", "documents": 10, "windows": 2}


def _define(values: absl_flags.FlagValues) -> None:
    absl_flags.DEFINE_integer("step", None, "a checkpoint", flag_values=values)
    absl_flags.DEFINE_bool("quick", False, "few windows", flag_values=values)
    absl_flags.DEFINE_bool("every_checkpoint", False, "all of them", flag_values=values)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
