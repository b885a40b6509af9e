"""python scripts/export.py RUN --out=FILE.safetensors [--step=N] [--overwrite]
python scripts/export.py RUN --out=FOLDER --layout=auto [--step=N]
python scripts/export.py RUN [RUN ...] --out=FILE.tar.xz [--overwrite]

Writes the weights of a run as safetensors: every trained array of model and encoding, named as in
its Orbax checkpoint, such as params.model.blocks.attention.q.kernel, without the optimizer state.
The file's metadata has the configuration as JSON, the step, and the digests of run and weights.

With --layout it writes a new folder that transformers reads: config.json, model.safetensors and
tokenizer.json. A layout is a model_type, such as llama or qwen3, and auto the first that states the
model; low-rank parts are merged. What the layout lacks is refused with the reason. --layout=peft
writes the low-rank parts alone, as an adapter of PEFT.

FILE.tar.xz holds runs to take away, to load, evaluate and generate from: the weights of their last
checkpoints. Its sha256 is written to FILE.tar.xz.sha256.

  python scripts/export.py runs/rope --out=rope.safetensors
  python scripts/export.py runs/llama_small --out=exported --layout=auto
"""

import argparse
import sys
from pathlib import Path

from posenc_jax.runtime import backend, terminal
from posenc_jax.runtime.errors import ConfigError


def main(argv: list[str]) -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("runs", type=Path, metavar="RUN", nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="the file or folder to write")
    parser.add_argument(
        "--layout", help="a model_type, auto or peft; default: one file with our names"
    )
    parser.add_argument("--step", type=int, help="a checkpoint; default: the last one")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing file (not a folder)"
    )
    options = parser.parse_args(argv[1:])
    return terminal.code_of(lambda: export(options))


def export(options: argparse.Namespace) -> None:
    backend.configure()
    (run, *others), packed = options.runs, options.out.name.endswith(".tar.xz")
    if packed and (options.layout or options.step is not None):
        raise ConfigError("--out=FILE.tar.xz holds last checkpoints in our layout")
    if others and not packed:
        raise ConfigError(f"several runs go into an archive, --out=FILE.tar.xz; got {options.out}")
    if packed:
        from posenc_jax.evaluation.archive import pack

        names, digest = pack(options.runs, options.out, overwrite=options.overwrite)
        terminal.say(f"{digest}  {options.out}\ntar xf {options.out} -C runs")
        terminal.say("\n".join(f'posenc_jax.load_run("runs/{name}")' for name in names))
        return
    if options.layout == "peft":
        from posenc_jax.pretrained.peft import save_adapter

        layout = save_adapter(run, options.out, options.step)
        terminal.say(f"{options.out}: an adapter for a model of {layout}")
        return
    if options.layout is not None:
        from posenc_jax.pretrained.saving import save_run

        layout = save_run(run, options.out, options.step, options.layout)
        terminal.say(f"{options.out}: in the layout of {layout}")
        return
    from posenc_jax.runs import export

    written = export.export(run, options.out, step=options.step, overwrite=options.overwrite)
    sizes = [array.size for array in written.arrays.values()]
    terminal.say(
        f"{options.out}: {terminal.counted(len(sizes), 'array')}, {sum(sizes):,} numbers of step "
        f"{written.facts['step']}; digest {written.facts['weights_digest']}"
    )


if __name__ == "__main__":
    sys.exit(terminal.program(main))
