"""python scripts/harness.py RUN --tasks=TASK[,TASK...] [--extension=yarn:8] [--max_length=N]

Scores a run on tasks of lm-evaluation-harness, prints its table, and with --out writes its results
as JSON. Rows have at most N tokens, by default the extension's scale times L. Longer contexts lose
their first tokens; the last line counts them. An extension without a scale, such as a dynamic one,
needs --max_length and gets N over L, the same for every row.

  python scripts/harness.py runs/rope --tasks=lambada_openai --extension=yarn:8 --out=lambada.json
  python scripts/harness.py runs/rope --tasks=mine --include=tasks

Needs pip install -e '.[lm_eval]'. docs/harness.md names tasks that need no network.
"""

import argparse
import json
import sys
from pathlib import Path

from posenc_jax.runtime import backend, terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--tasks", required=True, help="names of tasks, groups or tags")
    parser.add_argument("--extension", default="none", help="default: the run's own")
    parser.add_argument("--max_length", type=int, help="most tokens in a row")
    parser.add_argument("--limit", type=int, help="examples per task; default: all")
    parser.add_argument(
        "--include", type=Path, help="a folder with YAML files of tasks of your own"
    )
    parser.add_argument(
        "--metadata",
        type=json.loads,
        default={},
        help="a JSON object passed to the tasks, such as RULER's tokenizer",
    )
    parser.add_argument("--step", type=int, help="a checkpoint; default: the last one")
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    options = parser.parse_args(argv[1:])
    for name, least in (("max_length", 2), ("limit", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            parser.error(f"--{name} must be at least {least}")
    if not isinstance(options.metadata, dict):
        parser.error(f"--metadata must be a JSON object; got {options.metadata}")
    return terminal.code_of(lambda: score(options))


def score(options: argparse.Namespace) -> None:
    backend.configure()
    from posenc_jax.evaluation import harness
    from posenc_jax.runtime.files import write_atomically

    model = harness.load(options.run, options.extension, options.max_length, options.step)
    results = harness.run_tasks(
        model,
        options.tasks.split(","),
        limit=options.limit,
        include=options.include,
        metadata=own_tokenizer(options.run) | options.metadata,
    )
    if options.out is not None:
        write_atomically(options.out, harness.as_json(results))
    terminal.say(harness.table(results))
    terminal.say(
        f"{terminal.counted(model.cut, 'context')} of more than {model.max_length:,} tokens cut "
        "on the left"
    )


def own_tokenizer(run: Path) -> dict[str, str]:
    """RULER's tasks measure their texts with it; they cannot read a tokenizer of bytes."""
    return {"tokenizer": str(run)} if (run / "tokenizer.json").is_file() else {}


if __name__ == "__main__":
    sys.exit(terminal.program(main))
