"""python scripts/sweep.py --config=configs/sweeps/zoo.py --workdir=runs/zoo [--workers=N]

Trains and evaluates every job of a grid. Each job is an ordinary run in WORKDIR/<name>. Finished
work is not repeated: the same command resumes a stopped or killed sweep, and an extended grid runs
only its new jobs. A failed job is retried, then reported at the end.

  --workers=N              concurrent jobs, each with its own GPU or a share of the cores, and no
                           more than there are; default: one per GPU, or one without GPUs
  --launcher=local         processes on this machine; slurm: job arrays on a cluster, with the
                           resources under `slurm` in the sweep file (submitit's parameters)
  --config.FIELD=VALUE     set a field in every run of this sweep, such as --config.steps=2000
  --minutes=N              stop after N minutes: running jobs save, the exit code is 75, and the
                           same command resumes; for machines with a time limit
  --list                   print the next command of each job, and run nothing
  --dry_run                with --launcher=slurm: print the script for sbatch, and submit nothing
"""

import sys
from pathlib import Path

from posenc_jax.runtime import terminal
from posenc_jax.sweeping import run


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("--config", required=True, help="a file of configs/sweeps/")
    parser.add_argument("--workdir", required=True, type=Path, help="the folder of the sweep")
    parser.add_argument("--launcher", default="local", choices=["local", "slurm"])
    parser.add_argument("--workers", type=int, help="number of concurrent jobs")
    parser.add_argument("--minutes", type=float, help="stop after this many minutes")
    parser.add_argument("--list", action="store_true", help="print the jobs and run nothing")
    parser.add_argument("--dry_run", "--dry-run", action="store_true", help="submit nothing")
    options, words = parser.parse_known_args(argv[1:])
    if options.dry_run and options.launcher != "slurm":
        parser.error("--dry_run is for --launcher=slurm; --list prints the commands of jobs")
    if options.list:
        return terminal.code_of(
            lambda: terminal.say(run.commands(options.config, options.workdir, words))
        )
    return terminal.code_of(
        lambda: run.sweep(
            options.config,
            options.workdir,
            words,
            launcher=options.launcher,
            workers=options.workers,
            minutes=options.minutes,
            dry_run=options.dry_run,
        )
    )


if __name__ == "__main__":
    sys.exit(terminal.program(main))
