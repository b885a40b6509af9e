"""Read the command line of the programs before anything heavy is imported."""

import difflib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from posenc_jax import errors, packages, terminal

try:
    from absl import flags
    from ml_collections import ConfigDict, config_flags
except ModuleNotFoundError as error:
    print(f"error: {packages.missing(error)}", file=sys.stderr)
    raise SystemExit(errors.CONFIG) from None

from posenc_jax import composition, configuration, lineage, neighbours, validation
from posenc_jax.tracking import environment

FLOAT = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)"
NUMBER = r"[+-]?\d+(\.\d*)?([eE]\+?\d+)?"
HELP = ("-h", "--help", "-help", "--helpshort", "--helpfull")
EVALUATION = neighbours.HERE / "configs" / "eval.py"
EVALUATE = re.compile(r"--evaluate(?=[.=]|$)")


def read(
    argv: list[str],
    usage: str,
    *,
    default_config: str | None = None,
    define: Callable[[flags.FlagValues], object] = lambda values: None,
    resumes: bool = False,
):
    """Flags and configuration of a command; a mistake is printed and ends with exit code 2."""
    if any(arg in HELP for arg in argv[1:]):
        described = configuration.Evaluation if default_config else configuration.Training
        fields = "\n".join(configuration.explained(described, "--config."))
        codes = "\n".join(f"  {code:3d}  {meaning}" for code, meaning in errors.MEANING.items())
        terminal.say(f"{usage.strip()}\n\nFields:\n{fields}\n\nExit codes:\n{codes}")
        raise SystemExit(errors.DONE)
    try:
        return parse(argv, default_config=default_config, define=define, resumes=resumes)
    except errors.ConfigError as error:
        refuse(str(error).splitlines())


def train_only(values: flags.FlagValues) -> None:
    """The flag of train.py."""
    flags.DEFINE_bool("train_only", False, "evaluate later", flag_values=values)


def apart(argv: list[str]) -> tuple[list[str], list[str]]:
    """The words of a training, and those of --evaluate as eval_extrapolation.py reads them."""
    argv = _joined(argv)
    own = [word for word in argv if not EVALUATE.match(word)]
    return own, [EVALUATE.sub("--config", word) for word in argv if EVALUATE.match(word)]


def read_evaluation(words: list[str]) -> configuration.Config | None:
    """The evaluation that follows a training; None where none is asked for."""
    if not words:
        return None
    if any(word.startswith("--config.wandb") for word in words):
        refuse(["--evaluate.wandb has no effect: training and evaluation are one run of wandb"])
    try:
        return parse(["train.py", *words], default_config=str(EVALUATION))[1]
    except errors.ConfigError as error:
        refuse(str(error).replace("--config", "--evaluate").splitlines())


def parse(
    argv: list[str],
    *,
    default_config: str | None = None,
    define: Callable[[flags.FlagValues], object] = lambda values: None,
    resumes: bool = False,
):
    """Flags and configuration of a command; mistakes raise a ConfigError, a line for each.

    `define` adds a program's own flags. They are separate from absl's global ones, so that this can
    be called more than once. With `resumes` the configuration is that of the run in the workdir
    where none is given.
    """
    values = flags.FlagValues()
    fields = configuration.evaluation() if default_config else configuration.training()
    options, argv = _extension_options(_joined(argv))
    unset, argv = _unset(argv, fields)
    argv = [_plain(word, fields) for word in argv]
    wrong = _wrong_words(argv, fields, default_config)
    if wrong:
        base = f"--config={neighbours.HERE / 'configs' / 'base.py'}"
        named = any(word.startswith("--config=") for word in wrong) and not default_config
        argv = [word for word in argv if word not in wrong] + [base] * named
        more = _further(argv, default_config, define, resumes)
        raise errors.ConfigError("\n".join([*wrong.values(), *more]))
    begun = _of_run(argv) if resumes else None
    try:
        if begun is not None:
            config_flags.DEFINE_config_dict("config", begun, flag_values=values)
        else:
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
        missing = "--config=configs/... is missing"
        if resumes:
            missing += "; --workdir alone resumes a run, and there is none in it"
        raise errors.ConfigError(missing)
    with config.ignore_type():
        for name in unset:
            _group(config, name)[name.rpartition(".")[2]] = None
    if options:
        with config.unlocked(), config.ignore_type():
            extension: Any = config.extension
            extension.update(options)
    environment.apply(config, argv)
    return values, config


def _further(argv: list[str], default_config, define, resumes: bool) -> list[str]:
    """Mistakes in the rest of a command, so that all are reported at once."""
    try:
        config = parse(argv, default_config=default_config, define=define, resumes=resumes)[1]
    except errors.ConfigError as error:
        return str(error).splitlines()
    if default_config:
        return validation.validate_evaluation(config)
    begun: Any = _of_run(argv) if resumes else None
    judged = validation.judge(config, begun)
    return judged.problems + judged.missing_files


def _wrong_words(argv: list[str], fields: ConfigDict, default_config) -> dict[str, str]:
    """Words that name no recipe or no field or hold no value of its kind, each with what is wrong.

    Options of encodings and extensions are not known here.
    """
    wrong = {}
    names = configuration.every_field(fields)
    for word in argv:
        if word.startswith("--config="):
            mistake = _no_recipe(word, default_config)
        else:
            named = re.fullmatch(r"--config\.([\w.]+)=(.*)", word, re.DOTALL)
            mistake = named and _wrong_field(named[1], named[2], fields, names)
        if mistake:
            wrong[word] = mistake
    return wrong


def _wrong_field(name: str, value: str, fields: ConfigDict, names: list[str]) -> str | None:
    if not _known(fields, name):
        group = name.partition(".")[0]
        return None if group in ("encoding", "extension") else configuration.unknown(name, names)
    kind = _group(fields, name).get_type(_last(name))
    if kind is int and not re.fullmatch(r"[+-]?[0-9]+", value):
        return f"{name} must be a whole number, such as 600 or 1e3; got {value!r}"
    if kind is float and not re.fullmatch(FLOAT, value):
        return f"{name} must be a number, such as 0.003 or 3e-3; got {value!r}"
    if kind is bool and value.lower() not in ("true", "false"):
        return f"{name} must be True or False; got {value!r}"
    return None


def _no_recipe(word: str, default_config: str | None) -> str | None:
    """What is said of a recipe whose file is not there."""
    path = Path(word.removeprefix("--config=").partition(":")[0]).expanduser()
    if path.is_file():
        return None
    if default_config:
        return f"{word}: there is no such file; the default is configs/eval.py"
    files = (neighbours.HERE / "configs").glob("[!_]*.py")
    recipes = sorted(file.stem for file in files if file.stem != "eval")
    near = difflib.get_close_matches(path.stem, recipes, n=1)
    meant = f"did you mean configs/{near[0]}.py? " if near else ""
    return f"{word}: there is no such recipe; {meant}have: {', '.join(recipes)}"


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


def _joined(argv: list[str]) -> list[str]:
    """`--config FILE` as `--config=FILE`, and so with fields."""
    joined: list[str] = []
    for word in argv:
        before = joined[-1] if joined else ""
        opened = before.startswith(("--config", "--workdir", "--evaluate")) and "=" not in before
        if opened and not word.startswith("-"):
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def _unset(argv: list[str], fields: ConfigDict) -> tuple[list[str], list[str]]:
    """Take --config.FIELD=None out for fields that are None by default."""
    unset, others = [], []
    for word in argv:
        name = re.fullmatch(r"--config\.([\w.]+)=None", word)
        if name and _known(fields, name[1]) and _group(fields, name[1]).get(_last(name[1])) is None:
            unset.append(name[1])
        else:
            others.append(word)
    return unset, others


def _plain(word: str, fields: ConfigDict) -> str:
    """A recipe's path from anywhere; a whole number written as 1e3 in digits."""
    name, _, value = word.partition("=")
    if name == "--config":
        path, colon, size = value.partition(":")
        places = (Path(path).expanduser(), neighbours.HERE / path)
        places += (neighbours.HERE / "configs" / f"{path.removesuffix('.py')}.py",)
        file = next((place for place in places if place.is_file()), path)
        return word if file == places[0] else f"--config={file}{colon}{size}"
    field = name.removeprefix("--config.")
    kind = _group(fields, field).get_type(_last(field)) if _known(fields, field) else None
    if name == field or kind not in (int, None) or not re.fullmatch(NUMBER, value):
        return word
    number = float(value)
    return f"{name}={int(number)}" if number.is_integer() else word


def _known(fields: ConfigDict, name: str) -> bool:
    """Whether all runs have a field; options of encodings are not known here."""
    try:
        return _last(name) in _group(fields, name)
    except (KeyError, AttributeError, TypeError):
        return False


def _group(fields: Any, name: str) -> Any:
    """The group of fields that `data.task` is in."""
    for part in name.split(".")[:-1]:
        fields = fields[part]
    return fields


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _of_run(argv: list[str]) -> ConfigDict | None:
    """The configuration of the run in the workdir, where no recipe is given."""
    words = {name: value for name, _, value in (word.partition("=") for word in argv)}
    workdir = words.get("--workdir")
    if "--config" in words or not workdir:
        return None
    folder = Path(environment.workdir_of(workdir))
    if not (folder / "config.json").exists():
        return None
    try:
        saved = lineage.read(folder)
    except (OSError, ValueError, TypeError) as error:
        raise errors.ConfigError(f"cannot read {folder / 'config.json'}: {error}") from error
    config = configuration.training()
    with config.unlocked(), config.ignore_type():
        config.update(saved)
    return config


def _unknown_field(message: str, lister: str) -> str:
    field, guess = re.search(r"\w+", message), re.search(r'Did you mean "(\w+)"', message)
    meant = f"did you mean {guess[1]!r}? " if guess else ""
    return f"unknown field {field and field[0]!r}; {meant}{lister} lists them all"


def refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        terminal.say(f"error: {problem}", error=True)
    raise SystemExit(errors.CONFIG)
