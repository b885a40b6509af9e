"""python scripts/adopt.py SOURCE --workdir=RUN [--train_length=N] [--dtype=bfloat16]
                               [--weights=bfloat16]
python scripts/adopt.py ADAPTER --workdir=RUN --base=RUN

Turns a pretrained model into an ordinary run: configuration, tokenizer and one checkpoint. SOURCE
is a folder with config.json and *.safetensors, a .gguf file, or a model id on the Hugging Face Hub.
Every array must match a parameter and every parameter an array; otherwise nothing is written.
Compare what is printed with the model card (docs/pretrained.md).

ADAPTER is a folder of PEFT, with adapter_config.json. It becomes a run of model.lora on top of the
run of its base.

  python scripts/adopt.py models/SmolLM2-135M --workdir=runs/smollm2
  python eval_extrapolation.py --workdir=runs/smollm2 --config.data.source=text \\
      --config.data.path='books/*.txt' --config.lengths=2048,8192,16384
"""

import sys
from pathlib import Path

from posenc_jax.runtime import backend, terminal
from posenc_jax.runtime.errors import ConfigError


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--workdir", required=True, type=Path, help="the new run")
    parser.add_argument(
        "--train_length",
        "--train-length",
        type=int,
        help="longest trained length; default: as the model states it",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="dtype of the computation; default: bfloat16 if all weights are, else float32",
    )
    parser.add_argument(
        "--weights",
        choices=("bfloat16",),
        help="dtype in which matrices are held; default: as in the file, quantised ones as float32",
    )
    parser.add_argument("--base", type=Path, help="the run of the model that an adapter belongs to")
    options = parser.parse_args(argv[1:])

    def body() -> None:
        backend.configure()
        given = vars(options)
        if (base := given.pop("base")) is not None:
            if any(given[name] is not None for name in ("train_length", "dtype", "weights")):
                raise ConfigError("--base goes alone: an adapter takes all else from its base")
            from posenc_jax.pretrained.peft import adopt_adapter

            facts = adopt_adapter(Path(options.source), options.workdir, base)
        else:
            from posenc_jax.pretrained.adopt import adopt

            facts = adopt(**given)
        terminal.say("\n".join(f"{name}: {value}" for name, value in facts.items()))

    return terminal.code_of(body)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
