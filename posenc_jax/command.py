"""The command line of the entry points, before anything heavy is imported."""

import re
import sys
from collections.abc import Callable
from typing import NoReturn

from absl import flags
from ml_collections import ConfigDict, config_flags

from posenc_jax import errors
from posenc_jax.tracking import environment

HELP = ("-h", "--help", "-help", "--helpshort", "--helpfull")


def read(
    argv: list[str],
    usage: str,
    *,
    default_config: str | None = None,
    define: Callable[[flags.FlagValues], object] = lambda values: None,
):
    """The flags and the configuration a command gives; on a mistake, what it is, and exit 2."""
    if any(arg in HELP for arg in argv[1:]):
        codes = "\n".join(f"  {code:3d}  {meaning}" for code, meaning in errors.MEANING.items())
        print(f"{usage.strip()}\n\nExit codes:\n{codes}")
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
    """The flags and the configuration a command gives; a mistake is a ConfigError.

    `define` adds a program's own flags. They are kept apart from absl's global ones, so that this
    can be called more than once.
    """
    values = flags.FlagValues()
    try:
        config_flags.DEFINE_config_file(
            "config", default_config, "a recipe in configs/", values, sys_argv=argv
        )
        flags.DEFINE_string("workdir", None, "the folder of the run", flag_values=values)
        define(values)
        stray = values(argv)[1:]
        config = values.config
    except flags.Error as error:
        # Behind a recipe's own mistake stands a traceback; its last line says what it is.
        message = str(error).strip().splitlines()[-1].removeprefix("ValueError: ")
        raise errors.ConfigError(message) from error
    except AttributeError as error:  # what ml_collections raises for a field there is not
        file = "configs/eval.py" if default_config else "configs/base.py"
        message = _unknown_field(str(error), file)
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
    environment.apply(config, argv)
    return values, config


def _unknown_field(message: str, file: str) -> str:
    field, guess = re.search(r"\w+", message), re.search(r'Did you mean "(\w+)"', message)
    meant = f"did you mean {guess[1]!r}? " if guess else ""
    return f"unknown field {field and field[0]!r}; {meant}the fields are those of {file}"


def refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    raise SystemExit(errors.CONFIG)
