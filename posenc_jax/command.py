"""The command line of the entry points, before anything heavy is imported."""

import sys
from typing import NoReturn

from absl import flags
from ml_collections import ConfigDict, config_flags

from posenc_jax import exits

HELP = ("-h", "--help", "-help", "--helpshort", "--helpfull")


def read(argv: list[str], usage: str, *, default_config: str | None = None):
    """The flags and the configuration a command gives; on a mistake, what it is, and exit 2."""
    if any(arg in HELP for arg in argv[1:]):
        codes = "\n".join(f"  {code:3d}  {meaning}" for code, meaning in exits.MEANING.items())
        print(f"{usage.strip()}\n\nExit codes:\n{codes}")
        raise SystemExit(exits.DONE)
    try:
        config_flags.DEFINE_config_file("config", default_config, "a recipe in configs/")
        flags.DEFINE_string("workdir", None, "the folder of the run")
        stray = flags.FLAGS(argv)[1:]
        config = flags.FLAGS.config
    except flags.Error as error:
        refuse([str(error)])
    except (AttributeError, KeyError, TypeError, ValueError, OSError, ImportError) as error:
        refuse([" ".join(str(a) for a in error.args).replace("\n", " ").strip("'\" ")])
    if stray:
        refuse([f"stray words: {' '.join(stray)}; fields are set by --config.FIELD=VALUE"])
    if not isinstance(config, ConfigDict):
        refuse(["--config is missing; for example --config=configs/rope.py"])
    return flags.FLAGS, config


def refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    raise SystemExit(exits.CONFIG)
