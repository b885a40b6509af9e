"""python scripts/generate.py RUN --prompt=TEXT [--extension=yarn:8] [--tokens=N]

Continues a text with a run and prints it as it is generated. An extension without a scale gets the
final length (prompt + N - 1 tokens are read) over L.

  python scripts/generate.py runs/rope --prompt="def main(" --tokens=200
  python scripts/generate.py runs/rope --prompt="import" --extension=dynamic_ntk --temperature=0.8

With --semantics=prefix, every step gets the length so far over L instead. --semantics=stale adds
that keys keep the rotation they were written with, as in libraries that cache rotated keys.
"""

import argparse
import sys
from pathlib import Path

from posenc_jax.runtime import backend, terminal


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--prompt", required=True, help="the text to continue; -: standard input")
    parser.add_argument(
        "--tokens", type=int, default=200, help="most tokens to generate; default: 200"
    )
    parser.add_argument("--extension", default="none", help="default: the run's own")
    parser.add_argument(
        "--semantics", default="window", help="window (default), prefix, stale; see above"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="default: 0, always the likeliest token"
    )
    parser.add_argument("--top_k", type=int, help="draw from the K likeliest tokens")
    parser.add_argument(
        "--top_p", type=float, help="draw from the likeliest tokens whose probabilities reach P"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn tokens; default: 0")
    parser.add_argument(
        "--sequence", type=int, default=1, help="devices that share the cache; default: 1"
    )
    parser.add_argument(
        "--sharding", default="replicated", help="fsdp: these devices share the weights too"
    )
    parser.add_argument("--step", type=int, help="a checkpoint; default: the last one")
    options = parser.parse_args(argv[1:])
    return terminal.code_of(lambda: write(options))


def write(options: argparse.Namespace) -> None:
    backend.configure()
    from posenc_jax.evaluation.generate import continued
    from posenc_jax.runs import parameters
    from posenc_jax.runs.subject import load_subject
    from posenc_jax.runtime.errors import ConfigError

    subject = load_subject(options.run, options.step, parameters.on_host)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    drawn = ("extension", "semantics", "temperature", "top_k", "top_p", "seed")
    choices = {name: getattr(options, name) for name in (*drawn, "sequence", "sharding")}
    before = prompt
    try:
        for text in continued(subject, prompt, options.tokens, **choices):
            print(before, text, sep="", end="", flush=True)
            before = ""
    except ValueError as error:
        raise ConfigError(str(error)) from error
    print()


if __name__ == "__main__":
    sys.exit(terminal.program(main))
