"""Read the command line of the programs before anything heavy is imported."""

import argparse
import difflib
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from posenc_jax.runtime import errors, terminal

try:
    from ml_collections import ConfigDict
except ModuleNotFoundError as error:
    print(f"error: {errors.missing(error)}", file=sys.stderr)
    raise SystemExit(errors.CONFIG) from None

from posenc_jax import composition, fields
from posenc_jax.config import environment, schema
from posenc_jax.config.resolve import encoding_defaults, existing_config
from posenc_jax.data import sources
from posenc_jax.data.sources._files import Files
from posenc_jax.registry import ROOT
from posenc_jax.runtime.files import expanded

HELP = ("-h", "--help", "-help", "--helpshort", "--helpfull")
CONFIGS = ROOT / "configs"
EVALUATION = CONFIGS / "eval.py"
EVALUATE = re.compile(r"--evaluate(?=[.=]|$)")
FIELD = re.compile(r"--config\.([\w.]+)=(.*)", re.DOTALL)

Define = Callable[[argparse.ArgumentParser], object]


class Command(NamedTuple):
    """Flags, recipe and mistakes of a command line; `config.load` judges the values."""

    flags: argparse.Namespace
    recipe: ConfigDict
    problems: list[str]


def parse_flags(
    argv: list[str], usage: str, *, evaluation=False, define: Define = id, resumes=False
) -> Command:
    """The command line of a program; --help is answered and ends it."""
    if any(arg in HELP for arg in argv[1:]):
        described = schema.Evaluation if evaluation else schema.Training
        listed = "\n".join(schema.explained(described, "--config."))
        codes = "\n".join(f"  {code:3d}  {meaning}" for code, meaning in errors.MEANING.items())
        terminal.say(f"{usage.strip()}\n\nFields:\n{listed}\n\nExit codes:\n{codes}")
        raise SystemExit(errors.DONE)
    return parse(argv, evaluation=evaluation, define=define, resumes=resumes)


def without_evaluation(argv: list[str]) -> tuple[list[str], list[str]]:
    """The words of a training, and those of --evaluate as eval_extrapolation.py reads them."""
    argv = _joined(argv)
    training = [word for word in argv if not EVALUATE.match(word)]
    return training, [EVALUATE.sub("--config", word) for word in argv if EVALUATE.match(word)]


def parse_evaluation(words: list[str]) -> tuple[ConfigDict | None, list[str]]:
    """The evaluation that follows a training, None where none is requested, and its mistakes."""
    if not words:
        return None, []
    _, recipe, problems = parse(["train.py", *words], evaluation=True)
    if any(word.startswith("--config.wandb") for word in words):
        problems.append(
            "--config.wandb has no effect: training and evaluation are one run of wandb"
        )
    return recipe, [problem.replace("--config", "--evaluate") for problem in problems]


def refuse_missing(problems: Sequence[str], *recipes: ConfigDict | None) -> None:
    """Refuse files of text that are not there before jax is imported; with `problems`, which are
    reported first, `config.load` adds them."""
    for recipe in filter(None, () if problems else recipes):
        data = recipe.data if isinstance(recipe.data, ConfigDict) else {}
        place = {name: data.get(name) for name in ("source", "path", "valid_path")}
        origin, _ = sources.build(place, 2)
        if isinstance(origin, Files) and (missing := origin.missing()):
            raise errors.DataError("; ".join(missing))


def parse(
    argv: Sequence[str], *, evaluation: bool = False, define: Define = id, resumes: bool = False
) -> Command:
    """Flags and recipe of a command, and the mistakes in them.

    `define` adds a program's own flags. With `resumes` the configuration is that of the run in the
    workdir where no recipe is given.
    """
    words = _joined(list(argv))[1:]
    settings = [FIELD.fullmatch(word) for word in words]
    others = [word for word, setting in zip(words, settings, strict=True) if not setting]
    flags, problems = _flags(others, define, evaluation)
    recipe, more = _recipe(flags, evaluation, resumes)
    problems += more
    # A task of one's own brings fields of `data`.
    given = (setting.groups() for setting in settings if setting)
    for name, text in sorted(given, key=lambda one: one[0] not in ("data.source", "data.task")):
        try:
            _set(recipe, name, text)
        except ValueError as error:
            problems.append(str(error))
    environment.apply(recipe, list(argv))
    return Command(flags, recipe, problems)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise errors.ConfigError(message)


def _flags(
    words: list[str], define: Define, evaluation: bool
) -> tuple[argparse.Namespace, list[str]]:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--workdir", type=terminal.in_known_home)
    define(parser)
    flags, stray = parser.parse_known_args(words)
    problems = []
    known = [option for action in parser._actions for option in action.option_strings]
    for word in stray:
        if not word.startswith("-"):
            problems.append(f"stray words: {word}; fields are set by --config.FIELD=VALUE")
            continue
        name = word.partition("=")[0]
        recipe = schema.evaluation() if evaluation else schema.training()
        fields = schema.meant(name.strip("-"), _names(recipe))
        near = [f"--config.{field}{word.removeprefix(name)}" for field in fields]
        near = near or difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        problems.append(f"unknown flag {name}; {meant}have: {', '.join(known)}")
    return flags, problems


def _recipe(
    flags: argparse.Namespace, evaluation: bool, resumes: bool
) -> tuple[ConfigDict, list[str]]:
    """The recipe that a command names, or the usual fields and what is wrong with it."""
    usual = schema.evaluation() if evaluation else schema.training()
    named = flags.config or (str(EVALUATION) if evaluation else None)
    if named is None:
        folder = environment.workdir_of(flags.workdir) if resumes and flags.workdir else None
        saved = existing_config(Path(folder)) if folder else None
        if saved is not None:
            return ConfigDict(schema.as_fields(saved)), []
        more = "; --workdir alone resumes a run, and there is none in it" if resumes else ""
        return usual, [f"--config=configs/... is missing{more}"]
    path, _, size = named.partition(":")
    places = (expanded(path), ROOT / path, CONFIGS / f"{path.removesuffix('.py')}.py")
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        return usual, [_no_recipe(named, evaluation)]
    try:
        make = runpy.run_path(str(file))["get_config"]
        made = make(size) if size else make()
    except Exception as error:  # a recipe may raise anything
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        return usual, [f"{named}: {reason}"]
    if not isinstance(made, ConfigDict):
        return usual, [f"{named}: get_config() must return a ConfigDict; got {type(made).__name__}"]
    missing = [name for name in usual if name not in made]
    if missing:
        whole = f"schema.{'evaluation' if evaluation else 'training'}()"
        more = f"begin with posenc_jax.config.{whole}; missing: {', '.join(missing)}"
        return usual, [f"{named}: get_config() must return every field; {more}"]
    return made, []


def _no_recipe(named: str, evaluation: bool) -> str:
    if evaluation:
        return f"--config={named}: there is no such file; the default is configs/eval.py"
    files = CONFIGS.glob("[!_]*.py")
    recipes = sorted(file.stem for file in files if file.stem != "eval")
    near = difflib.get_close_matches(Path(named.partition(":")[0]).stem, recipes, n=1)
    meant = f"did you mean configs/{near[0]}.py? " if near else ""
    return f"--config={named}: there is no such recipe; {meant}have: {', '.join(recipes)}"


def _set(recipe: ConfigDict, field: str, text: str) -> None:
    """Set a field from the text that a person wrote for it."""
    group, _, name = field.rpartition(".")
    place: Any = recipe
    for inner in filter(None, group.split(".")):
        place = place.get(inner) if isinstance(place, ConfigDict) else None
    if not isinstance(place, ConfigDict) or isinstance(place.get(name), ConfigDict):
        raise ValueError(schema.unknown(field, list(schema.flat(recipe))))
    value = _value(recipe, place, group, field, text)
    with place.unlocked(), place.ignore_type():
        place[name] = value


def _value(recipe: ConfigDict, place: Any, group: str, field: str, text: str) -> Any:
    name = field.rpartition(".")[2]
    described = _described(recipe, group).get(name)
    if described is not None:
        if text == "None" and described.optional:
            return None
        return fields.parsed(field, described.kind, text)
    if group not in ("encoding", "extension"):
        raise ValueError(schema.unknown(field, _names(recipe)))
    value = None if text == "None" else composition.value(text)
    usual = encoding_defaults(place).get(name) if group == "encoding" else None
    return float(value) if type(value) is int and type(usual) is float else value


def _names(recipe: ConfigDict) -> list[str]:
    of_training = sources.every_option() if "model" in recipe else ()
    options = (f"data.{option}" for option in of_training)
    return list(dict.fromkeys([*schema.flat(recipe), *options]))


def _described(recipe: ConfigDict, group: str) -> dict[str, fields.Field]:
    """The fields of a group that have a type; options of encodings and extensions have none."""
    top: type = schema.Training if "model" in recipe else schema.Evaluation
    inner = dict(fields.groups(top)).get(group, top)
    described = list(fields.fields(inner))
    if inner is schema.Data:
        given: Any = recipe.data
        every = sources.every_option(given).values()
        options = [field._replace(default=None) for field, _ in every]
        described = [*options, *schema.data_fields()]
    return {field.name: field for field in described}


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
