"""python scripts/extend.py SOURCE --to=N --workdir=DIR [--text='books/*.txt'] [--prompts=1024,8192]
                          [--minutes=M] [--engine=vllm] [--tune=lora:steps=200] [--dry_run]

Says which extension and factor let a pretrained model read prompts of N tokens, whether it reads
them, what that costs shorter prompts, and what to paste into an engine. SOURCE is what adopt.py
takes, or a run. It screens methods on two texts, decides between three on ten, and writes
DIR/extend.md, extend.png, rows.csv and paste/. The same command resumes; another --to reuses what
it can. Texts are longer than N tokens: files or a .jsonl file.

  python scripts/extend.py HuggingFaceTB/SmolLM2-135M --to=16384 --text='books/*.txt' \\
      --workdir=runs/extend
"""

import sys
from pathlib import Path

from posenc_jax.runtime import terminal


def lengths(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--to", type=int, required=True, help="tokens of the longest prompt")
    parser.add_argument("--workdir", type=Path, required=True, help="for the run and the answer")
    parser.add_argument(
        "--text", default="", help="files, or a .jsonl file; default: Python's library"
    )
    parser.add_argument(
        "--prompts",
        type=lengths,
        default=(),
        help="lengths of usual prompts, whose price decides; default: L / 8 and L",
    )
    parser.add_argument("--minutes", type=float, help="most minutes to compute; default: no bound")
    parser.add_argument("--engine", default="", help="choose among what this engine reads right")
    parser.add_argument(
        "--tune",
        default="",
        help="train it with the method chosen: lora:steps=200; 20 texts or more",
    )
    parser.add_argument(
        "--dry_run", "--dry-run", action="store_true", help="say what it would do, and stop"
    )
    options = parser.parse_args(argv[1:])

    def body() -> None:
        from posenc_jax.advice import advise

        advise(**vars(options))

    return terminal.code_of(body)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
