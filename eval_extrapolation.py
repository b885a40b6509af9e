"""python eval_extrapolation.py --workdir=DIR [--config=configs/eval.py] [--config.FIELD=VALUE ...]

Reads the run in DIR and writes its perplexity against length: eval/curves.csv, eval/curves.jsonl,
eval/positions.npz and plots/. Fields are those of configs/eval.py, for example:

  --config.multiples=1,2,4,8,16 --config.extensions=none,ntk,yarn:4,dynamic_ntk
  --config.data.source=text --config.data.path='books/*.txt'

--step=N reads an earlier checkpoint.
"""

import sys
from pathlib import Path

from absl import flags as absl_flags

from posenc_jax import command, configuration, exits


def main(argv: list[str]) -> int:
    flags, config = command.read(
        argv, __doc__ or "", default_config="configs/eval.py", define=_define
    )
    problems = configuration.validate_evaluation(config)
    if not flags.workdir or not (Path(flags.workdir) / "config.json").is_file():
        problems.append(f"--workdir must be the folder of a run; got {flags.workdir!r}")
    if problems:
        command.refuse(problems)

    from posenc_jax import backend

    backend.configure()
    backend.self_test()
    from posenc_jax.evaluation import sweep

    try:
        print(sweep.table(sweep.evaluate(config, Path(flags.workdir), flags.step)))
    except exits.Stop as stop:
        print(f"error: {stop}", file=sys.stderr)
        return stop.code
    return exits.DONE


def _define(values: absl_flags.FlagValues) -> None:
    absl_flags.DEFINE_integer("step", None, "a checkpoint", flag_values=values)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
