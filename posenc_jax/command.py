"""Read the command line of the programs before anything heavy is imported."""

import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from posenc_jax import errors, packages

try:
    from absl import flags
    from ml_collections import ConfigDict, config_flags
except ModuleNotFoundError as error:
    print(f"error: {packages.missing(error)}", file=sys.stderr)
    raise SystemExit(errors.CONFIG) from None

from posenc_jax import composition, configuration
from posenc_jax.tracking import environment

HELP = ("-h", "--help", "-help", "--helpshort", "--helpfull")


def read(
    argv: list[str],
    usage: str,
    *,
    default_config: str | None = None,
    define: Callable[[flags.FlagValues], object] = lambda values: None,
):
    """Flags and configuration of a command; a mistake is printed and ends with exit code 2."""
    if any(arg in HELP for arg in argv[1:]):
        described = configuration.Evaluation if default_config else configuration.Training
        fields = "\n".join(configuration.explained(described, "--config."))
        codes = "\n".join(f"  {code:3d}  {meaning}" for code, meaning in errors.MEANING.items())
        print(f"{usage.strip()}\n\nFields:\n{fields}\n\nExit codes:\n{codes}")
        raise SystemExit(errors.DONE)
    try:
        return parse(argv, default_config=default_config, define=define)
    except errors.ConfigError as error:
        refuse([str(error)])


def parse(
    argv: list[str],
    *,
    default_config: str | None = None,
    define: Callable[[flags.FlagValues], object] = lambda values: None,
):
    """Flags and configuration of a command; a mistake raises ConfigError.

    `define` adds a program's own flags. They are separate from absl's global ones, so that this can
    be called more than once.
    """
    values = flags.FlagValues()
    options, argv = _extension_options(argv)
    try:
        config_flags.DEFINE_config_file(
            "config", default_config, "a recipe in configs/", values, sys_argv=argv
        )
        flags.DEFINE_string("workdir", None, "the folder of the run", flag_values=values)
        define(values)
        stray = values(argv)[1:]
        config = values.config
    except flags.Error as error:
        # A recipe's own mistake comes with a traceback, whose last line names it.
        message = str(error).strip().splitlines()[-1].removeprefix("ValueError: ")
        raise errors.ConfigError(message) from error
    except AttributeError as error:  # ml_collections raises it for an unknown field
        program = "eval_extrapolation.py" if default_config else "train.py"
        message = _unknown_field(str(error), f"python {program} --help")
        raise errors.ConfigError(message) from error
    except (KeyError, TypeError, ValueError, OSError, ImportError) as error:
        raise errors.ConfigError(str(error)) from error
    if stray:
        words = " ".join(stray)
        raise errors.ConfigError(f"stray words: {words}; fields are set by --config.FIELD=VALUE")
    if not isinstance(config, ConfigDict):
        named = next((arg for arg in argv if arg.startswith("--config=")), None)
        missing = f"{named}: there is no such file" if named else "--config=configs/... is missing"
        raise errors.ConfigError(missing)
    if options:
        with config.unlocked(), config.ignore_type():
            extension: Any = config.extension
            extension.update(options)
    environment.apply(config, argv)
    return values, config


def _extension_options(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Take --config.extension.OPTION=VALUE out: no configuration lists the options of all."""
    options, others = {}, []
    for word in argv:
        option = re.fullmatch(r"--config\.extension\.(\w+)=(.*)", word, re.DOTALL)
        if option and option[1] not in configuration.Extension.__dataclass_fields__:
            options[option[1]] = composition.value(option[2])
        else:
            others.append(word)
    return options, others


def _unknown_field(message: str, lister: str) -> str:
    field, guess = re.search(r"\w+", message), re.search(r'Did you mean "(\w+)"', message)
    meant = f"did you mean {guess[1]!r}? " if guess else ""
    return f"unknown field {field and field[0]!r}; {meant}{lister} lists them all"


def refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    raise SystemExit(errors.CONFIG)
