"""python scripts/check_config.py --config=configs/rope.py:small [--config.FIELD=VALUE ...]
python scripts/check_config.py --config=configs/rope.py:1b --devices=8
python scripts/check_config.py --list

Checks a configuration and prints it resolved, with its parameters and the memory of a training step
on each of so many GPUs (default: 1). Also prints the turns of each rotary pair within the trained
length, and how far training can move a trained bias, in logits. `--list` prints every encoding and
extension with its options, and what the columns of curves.csv hold.
"""

import dataclasses
import json
import sys

from posenc_jax import config
from posenc_jax.config.flags import parse_flags
from posenc_jax.config.schema import Training, as_fields
from posenc_jax.runtime import backend, terminal

LEAST_REACH = 3  # logits


def main(argv: list[str]) -> int:
    if argv[1:] == ["--list"]:
        return print_choices()
    return terminal.code_of(lambda: print_configuration(argv))


def print_configuration(argv: list[str]) -> None:
    backend.configure()
    flags, recipe, problems = parse_flags(argv, __doc__ or "", define=_devices)
    import jax

    from posenc_jax import extensions
    from posenc_jax.data import corpora
    from posenc_jax.runs import parameters
    from posenc_jax.schemes.rope import RoPE
    from posenc_jax.training import memory

    if flags.devices < 1:
        problems.append(f"--devices must be at least 1; got {flags.devices}")
    run = config.load(recipe, more=problems)
    model = run.model
    vocab = model.vocab or corpora.encoder_of(run.data.source).vocab
    run = dataclasses.replace(run, model=dataclasses.replace(model, vocab=vocab))
    parts = parameters.unextended(run).params()
    terminal.say(json.dumps(as_fields(run), indent=2))
    terminal.say("parameters")
    for group, leaves in parts.items():
        for name, leaf in leaves.items():
            terminal.say(f"  {leaf.size:>14,}  {group}.{name} {leaf.shape}")
    count = sum(leaf.size for leaf in jax.tree.leaves(parts))
    terminal.say(f"  {count:>14,}  in all")
    where = "a GPU" if flags.devices == 1 else f"each of {flags.devices} GPUs"
    held = memory.in_words(memory.of_a_step(run, flags.devices))
    terminal.say(f"memory of a step on {where}, GiB: {held}")
    encoding = parameters.first_encoding(run)
    if isinstance(encoding, RoPE):
        terminal.say(f"turns of each rotary pair within L = {encoding.train_length}")
        turns = extensions.turns(encoding).reshape(-1)
        terminal.say("  " + " ".join(f"{each:.3g}" for each in turns))
    if parts["encoding"]:
        reach_of_the_encoding(run, encoding)


def print_choices() -> int:
    """Print every encoding and extension with its description, options and defaults."""
    from posenc_jax import extensions, schemes
    from posenc_jax.encoding import Encoding
    from posenc_jax.evaluation import protocols

    terminal.say("encodings: --config.encoding.name=NAME --config.encoding.OPTION=VALUE")
    terminal.say("  options of most encodings: per_layer=False sink=False")
    for name in schemes.names():
        module = schemes.find(name)
        _print_choice(name, schemes.options_of(name), module.__doc__)
    terminal.say("\nextensions: NAME[:SCALE][:OPTION=VALUE][+ANOTHER]; a list is written 1/1.5/2")
    terminal.say("  layers=local|global|all, in a hybrid; default: the layers that see everything")
    for name, record in extensions.records().items():
        made_for = "any" if record.of is Encoding else record.made_for
        _print_choice(f"{name} (for {made_for})", record.options, record.apply.__doc__)
    terminal.say("\ncolumns of curves.csv; empty: does not apply, or not finite")
    for name, column in protocols.columns().items():
        terminal.say(f"  {name}: {column.about}")
    return 0


def _print_choice(title: str, options, about: str | None) -> None:
    first, _, _ = (about or "").partition("\n\n")
    terminal.say(f"  {title}: {' '.join(first.split())}")
    values = [
        name if option.default is option.empty else f"{name}={option.default}"
        for name, option in options.items()
    ]
    if values:
        terminal.say(f"      {' '.join(values)}")


def reach_of_the_encoding(config: Training, encoding) -> None:
    from posenc_jax.training import optimizer

    distance = optimizer.travel(config)
    logits = optimizer.bias_travel(config, encoding)
    of_bias = "" if logits is None else f", {logits:.3g} logits of its bias"
    terminal.say(
        f"reach: {distance:.3g} in every trained array of the encoding (sum of rates, times\n"
        f"  encoding_rate = {config.encoding_rate:g}){of_bias}"
    )
    if logits is not None and logits < LEAST_REACH:
        terminal.warn(
            f"the bias can move by {logits:.2g} logits in this run; below {LEAST_REACH} it barely "
            "distinguishes positions: raise encoding_rate, learning_rate or steps"
        )


def _devices(parser) -> None:
    parser.add_argument("--devices", type=int, default=1)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
