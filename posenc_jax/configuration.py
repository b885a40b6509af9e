"""What a training configuration may say. Nothing here imports jax: mistakes are found at once."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from posenc_jax import catalog, formats, neighbours
from posenc_jax.checks import choice, known, positive, rotary_dims, whole_number
from posenc_jax.errors import ConfigError

Config = Any  # a ConfigDict; its fields have no types a checker could know

SOURCES = ("stdlib", "text", "jsonl", "hub", "synthetic")
WANDB_MODES = ("auto", "online", "offline", "disabled")
TASKS = ("copy", "induction", "passkey", "delayed_repeat")
# Fields of `data` that some sources read: which, and what None stands for.
READ_BY: dict[str, tuple[tuple[str, ...], Any]] = {
    "path": (("text", "jsonl", "hub"), ""),
    "field": (("jsonl", "hub"), "text"),
    "split": (("hub",), "train"),
    "task": (("synthetic",), "copy"),
    "documents": (("synthetic",), 2_000),
    "document_length": (("synthetic",), 2_048),
}
MOST = {  # beyond these no machine trains, and jax would only say so later and worse
    "train_length": 2**24,  # places that float32 tells apart
    "batch_size": 2**24,
    "steps": 2**31 - 1,
    "accumulate": 2**24,
    "keep": 2**20,
    "model.layers": 10_000,
    "model.width": 2**20,
    "model.heads": 2**16,
    "model.kv_heads": 2**16,
    "model.head_dim": 2**16,
    "model.hidden": 2**24,
    "model.vocab": 2**24,
}
SCALELESS = ("none", "logn")  # extensions that no scale changes
# Without these a file is no configuration of a run.
ESSENTIAL = (
    "seed",
    "train_length",
    "batch_size",
    "steps",
    "model",
    "encoding",
    "extension",
    "data",
)
# What may differ when a run goes on: how long, how often, how it is shown, where tokens are kept.
FREE = (
    "steps",
    "stop_at",
    "log_every",
    "valid_every",
    "save_every",
    "valid_batches",
    "keep",
    "sharding",
    "distributed",
    "wandb",
    "data.cache",
)


def validate(config, begun: Mapping | None = None) -> list[str]:
    """Everything that is wrong with a configuration, each with its field, value and rule.

    `begun` is the configuration of the run that goes on: where it came from lies behind it.
    """
    base = neighbours.config("base")
    expected = base.get_config().to_dict()
    wrong = _structure(config.to_dict(), expected, may_be_open=True)
    if wrong:
        return wrong  # the values cannot be asked for
    try:
        config = resolved(config, begun)
    except ConfigError as error:
        return [str(error)]
    wrong = _structure(config.to_dict(), expected)
    if wrong:
        return wrong
    problems: list[str] = []
    ask = _Asker(problems)
    for check in (_numbers, _model, _encoding, _extension, _data, _choices):
        check(config, ask)
    source = begun
    if begun is None and config.init_from:
        source = _source(config, ask)
    _length(config, source, ask)
    return problems


class _Asker:
    """Calls a rule and keeps what it says against a value."""

    def __init__(self, problems: list[str]):
        self.problems = problems

    def __call__(self, rule: Callable, *args, **options) -> bool:
        try:
            rule(*args, **options)
        except ValueError as error:
            self.problems.append(str(error))
            return False
        return True

    def that(self, holds: bool, message: str) -> bool:
        if not holds:
            self.problems.append(message)
        return holds


def _structure(
    given: Mapping, expected: Mapping, prefix: str = "", *, may_be_open: bool = False
) -> list[str]:
    problems = []
    for name, default in expected.items():
        field = f"{prefix}{name}"
        if name not in given and field == "encoding.per_layer":
            continue  # where a recipe replaced the group
        if name not in given:
            problems.append(f"{field} is missing; set single fields, --config.{field}=...")
        elif isinstance(default, Mapping):
            if not isinstance(given[name], Mapping):
                problems.append(f"{field} holds fields and got {given[name]!r}")
            else:
                inner = _structure(given[name], default, f"{field}.", may_be_open=may_be_open)
                problems += inner
        elif may_be_open and given[name] is None:
            continue
        elif isinstance(default, bool) != isinstance(given[name], bool) and default is not None:
            problems.append(f"{field} must be {type(default).__name__}; got {given[name]!r}")
    for name in set(given) - set(expected):
        if prefix not in ("encoding.", "extension."):
            try:
                known("field", f"{prefix}{name}", [f"{prefix}{n}" for n in expected])
            except ValueError as error:
                problems.append(str(error))
    return problems


def _numbers(config, ask):
    for name in ("train_length", "batch_size", "steps", "accumulate", "keep"):
        ask(whole_number, name, config[name], at_least=1, at_most=MOST[name])
    for name in ("log_every", "valid_every", "save_every", "valid_batches"):
        ask(whole_number, name, config[name], at_least=1)
    for name in ("seed", "stop_at"):
        if ask(whole_number, name, config[name], at_least=0):
            ask.that(config[name] < 2**63, f"{name} must be below 2^63; got {config[name]}")
    for name in ("learning_rate", "encoding_rate", "clip"):
        if ask(positive, name, config[name]):
            _between(ask, name, config[name], 1e-30, 1e30)  # what float32 can multiply by
    _between(ask, "weight_decay", config.weight_decay, 0, 1e6)
    _between(ask, "final_rate", config.final_rate, 0, 1)
    for name in ("beta1", "beta2"):
        _between(ask, name, config[name], 0, 0.999999)
    if ask(whole_number, "warmup_steps", config.warmup_steps, at_least=0):
        ask.that(
            config.warmup_steps <= config.steps,
            f"warmup_steps must not exceed steps = {config.steps}; got {config.warmup_steps}",
        )
    if isinstance(config.accumulate, int) and config.accumulate >= 1:
        ask.that(
            config.batch_size % config.accumulate == 0,
            f"batch_size must be a multiple of accumulate = {config.accumulate}; "
            f"got {config.batch_size}",
        )
    ask.that(
        not isinstance(config.train_length, int) or config.train_length >= 2,
        f"train_length must be at least 2, or nothing is predicted from anything; "
        f"got {config.train_length}",
    )


def _between(ask, name, value, low, high) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ask.that(
        is_number and low <= value <= high and math.isfinite(value),
        f"{name} must be a number from {low} to {high}; got {value!r}",
    )


def _model(config, ask):
    model = config.model

    def is_size(name: str) -> bool:
        most = MOST[f"model.{name}"]
        return ask(whole_number, f"model.{name}", model[name], at_least=1, at_most=most)

    sizes = all([is_size(name) for name in ("width", "heads")])
    is_size("layers")
    for name in ("kv_heads", "head_dim", "hidden", "vocab"):
        if model[name] is not None:
            is_size(name)
    if sizes and model.head_dim is None:
        ask.that(
            model.width % model.heads == 0,
            f"model.width must be a multiple of model.heads = {model.heads}, or model.head_dim "
            f"given; got {model.width}",
        )
    if sizes and model.kv_heads:
        ask.that(
            model.heads % model.kv_heads == 0,
            f"model.heads must be a multiple of model.kv_heads = {model.kv_heads}; "
            f"got {model.heads}",
        )
    ask(choice, "model.norm", model.norm, ("rms", "layer"))
    ask(choice, "model.norm_place", model.norm_place, ("pre", "post"))
    ask(choice, "model.activation", model.activation, ("gelu", "swiglu"))
    ask(choice, "model.dtype", model.dtype, ("float32", "bfloat16"))
    ask(choice, "model.attention", model.attention, ("auto", "plain", "blockwise", "kernel"))


def _encoding(config, ask):
    name = config.encoding.name
    if not ask(known, "encoding", name, catalog.encodings()):
        return
    _options(
        ask,
        f"encoding {name!r}",
        config.encoding,
        catalog.encoding_options(name),
        ("name", "per_layer"),
    )
    inner = config.encoding.get("inner", name)
    if name == "randomized" and not ask(known, "encoding", inner, catalog.encodings()):
        return
    ask.that(
        config.encoding_rate == 1 or catalog.trains(inner),
        f"encoding_rate = {config.encoding_rate} has no effect: encoding {inner!r} has no trained "
        "arrays",
    )
    model, options = config.model, config.encoding
    whole = isinstance(model.width, int) and isinstance(model.heads, int) and model.heads > 0
    if "fraction" in options and whole:
        ask(rotary_dims, model.head_dim or model.width // model.heads, options.fraction)
    if "base" in options and isinstance(options.base, int | float):
        ask(positive, "encoding.base", options.base, above=1.0)
    if "max_position" in options and options.max_position is not None:
        ask(
            whole_number,
            "encoding.max_position",
            options.max_position,
            at_least=config.train_length,
        )


def _options(ask, what, given, allowed, fixed):
    for option in set(given) - set(fixed):
        if allowed is not None:
            if allowed:
                ask(known, f"option of {what}:", option, allowed)
            else:
                ask.that(False, f"{what} takes no options; got {option!r}")


def _extension(config, ask):
    name, scale = config.extension.name, config.extension.scale
    if ask(positive, "extension.scale", scale):
        _between(ask, "extension.scale", scale, 0, 1e6)
    if not ask(known, "extension", name, catalog.extensions()):
        return
    if name in SCALELESS:
        ask.that(
            scale == 1,
            f"extension.scale = {scale} has no effect with extension.name={name}; name one that "
            "takes a scale, such as yarn",
        )
    if isinstance(scale, int | float):
        ask.that(not scale < 1, f"extension.scale must be at least 1; got {scale}")
    if name.startswith("dynamic_"):
        ask.that(
            False,
            f"extension.name: {name!r} follows the length read; train with "
            f"{name.removeprefix('dynamic_')!r} and a scale",
        )
        return
    carrier = config.encoding.get("inner", config.encoding.name)
    made_for = catalog.extensions()[name]
    fits = [n for n, target in catalog.extensions().items() if target in ("", carrier)]
    ask.that(
        made_for in ("", carrier),
        f"extension {name!r} does not fit encoding {carrier!r}; those that do: {', '.join(fits)}",
    )


def _data(config, ask):
    data = config.data
    if not ask(choice, "data.source", data.source, SOURCES):
        return
    _unread(data, data.source, ask)
    data = with_unset(data)
    if data.source in READ_BY["path"][0]:
        ask.that(bool(data.path), f"data.path must say what to read for data.source={data.source}")
    if data.source == "synthetic":
        ask(choice, "data.task", data.task, TASKS)
        ask(whole_number, "data.documents", data.documents, at_least=1)
        ask(whole_number, "data.document_length", data.document_length, at_least=2)
        ask.that(data.tokenizer == "bytes", "data.tokenizer must be 'bytes' for synthetic data")
    fractions = ("valid_fraction", "choose_fraction")
    if all([_between(ask, f"data.{name}", data[name], 0, 1) for name in fractions]):
        ask.that(
            sum(data[name] for name in fractions) < 1,
            "data.valid_fraction and data.choose_fraction must leave text to train on, their sum "
            f"below 1; got {data.valid_fraction} + {data.choose_fraction}",
        )
    if data.tokenizer != "bytes":
        ask.that(
            _exists(data.tokenizer),
            f"data.tokenizer must be 'bytes', a tokenizer.json, or a folder with vocab.json and "
            f"merges.txt; there is no {_short(data.tokenizer)!r}",
        )


def _exists(path) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # a name that is too long, or no name
        return False


def _short(text, most: int = 200) -> str:
    return text if len(str(text)) <= most else f"{str(text)[:most]}..."


def _unread(data, source: str, ask) -> None:
    """A field that the source does not read would have no effect."""
    for name, (sources, _) in READ_BY.items():
        if name in data and data[name] not in (None, ""):
            ask.that(
                source in sources,
                f"data.{name} = {data[name]!r} has no effect with data.source={source}; it is for "
                f"data.source={' or '.join(sources)}",
            )


def with_unset(data) -> Config:
    """`data` with a value in every field that its source reads."""
    data = data.copy_and_resolve_references()
    with data.ignore_type():
        for name, (sources, default) in READ_BY.items():
            if data.source in sources and data[name] is None:
                data[name] = default
    return data


def _choices(config, ask):
    ask(choice, "schedule", config.schedule, ("cosine", "linear"))
    ask(choice, "sharding", config.sharding, ("replicated", "fsdp"))
    ask(choice, "wandb.mode", config.wandb.mode, WANDB_MODES)
    if config.original_length is not None:
        ask(whole_number, "original_length", config.original_length, at_least=2)


def _length(config, source: Mapping | None, ask):
    name, scale = config.extension.name, config.extension.scale
    if not all(isinstance(n, int | float) for n in (config.train_length, scale)):
        return  # which has been said
    original = original_length(config, source)
    if config.encoding.name == "learned":
        rows = original * (scale if name in ("interpolate", "clamp") else 1)
        ask.that(
            not config.train_length > rows,
            f"train_length = {config.train_length} is beyond the {rows:g} rows of the "
            "learned table; set extension.name=interpolate (or clamp) and extension.scale",
        )
    elif name not in (*SCALELESS, "abf"):
        ask.that(
            not config.train_length > scale * original,
            f"train_length = {config.train_length} is beyond scale x L = {scale:g} x {original} = "
            f"{scale * original:g}, which extension {name!r} reaches; raise extension.scale or "
            "lower train_length",
        )


def original_length(config, source: Mapping | None = None) -> int:
    """L of the formulas: the run's own, or that of the run it starts or goes on from."""
    if source is None:
        return config.original_length or config.train_length
    return config.original_length or source.get("original_length") or source["train_length"]


def _source(config, ask) -> Mapping | None:
    """The configuration of the run that `init_from` names, if it is one to start from."""
    try:
        source = read(Path(config.init_from))
        unlike = _unlike(config, source)
    except (OSError, ValueError, KeyError, TypeError) as error:
        ask.that(False, _no_source(config, error))
        return None
    for line in unlike:
        ask.that(False, f"init_from: {line}; give the model and the encoding of that run")
    return source


def _no_source(config, error: Exception) -> str:
    return (
        f"init_from must be the workdir of a run; {config.init_from!r} holds no config.json that "
        f"can be read ({type(error).__name__})"
    )


def read(workdir: Path) -> dict[str, Any]:
    """The configuration of a run, in today's words whatever wrote it."""
    fields = json.loads((workdir / "config.json").read_text(encoding="utf-8"))
    missing = set(ESSENTIAL) - set(fields)
    if missing:
        raise ValueError(f"no {', '.join(sorted(missing))}")
    return formats.upgraded(fields, fields.pop("format", None))


def resolved(config, begun: Mapping | None = None) -> Config:
    """With every value that training reads: what a recipe leaves open comes from the run that it
    goes on from, or starts from (`init_from`)."""
    config = _from_source(config, begun)
    if "per_layer" not in config.encoding:  # where a recipe replaced the group
        with config.encoding.unlocked():
            config.encoding.per_layer = neighbours.config("base").get_config().encoding.per_layer
    config.data = with_unset(config.data)
    if config.init_from and not config.original_length:
        with suppress(OSError, ValueError, KeyError, TypeError):  # which validation tells
            source = begun or read(Path(config.init_from))
            config.original_length = original_length(config, source)
    return config


def _from_source(config, begun: Mapping | None) -> Config:
    base = neighbours.config("base")
    groups = [name for name in ("model", "encoding", "data") if _is_open(name, config, base)]
    single = [n for n in ("train_length", "batch_size", "learning_rate") if config[n] is None]
    if not groups and not single:
        return config.copy_and_resolve_references()
    source, again = begun, begun is not None
    if source is None:
        if not config.init_from:
            raise ConfigError(
                "init_from is missing: this recipe takes what it leaves open, such as "
                f"{', '.join([*groups, *single])}, from a run: --config.init_from=RUN"
            )
        try:
            source = read(Path(config.init_from))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(_no_source(config, error)) from error
    config = config.copy_and_resolve_references()
    for name in groups:
        said = {field: value for field, value in config[name].items() if value is not None}
        taken = dict(source[name])
        if name == "data" and said.get("source") not in (None, taken.get("source")):
            taken |= {field: None for field in READ_BY if field != "path"} | {"path": ""}
        config[name] = ConfigDict(taken | said)
    made = source if again else _lengthened(config, source)
    for name in single:
        config[name] = made[name]
    return config


def _is_open(name: str, config, base) -> bool:
    """Whether a group lacks a value that it cannot do without."""
    defaults = base.get_config()[name].items()
    needed = [field for field, value in defaults if value is not None and field != "per_layer"]
    return any(config[name].get(field) is None for field in needed)


def _lengthened(config, source: Mapping) -> dict[str, Any]:
    """Training at the length that the extension reaches, with as many tokens in a step."""
    original = source.get("original_length") or source["train_length"]
    length = config.train_length or round(config.extension.scale * original)
    tokens = source["batch_size"] * source["train_length"]
    return {
        "train_length": length,
        "batch_size": max(1, tokens // length),
        "learning_rate": source["learning_rate"] / 5,
    }


def _unlike(config, source: Mapping) -> list[str]:
    """What of model, encoding and tokenizer is not that of the run whose weights are taken."""
    chosen = []
    for tree in (source, config.to_dict()):
        fields = dict(_flat({name: tree[name] for name in ("model", "encoding")}))
        fields["data.tokenizer"] = tree["data"]["tokenizer"]
        chosen.append(fields)
    free = {f"model.{name}" for name in ("dtype", "remat", "scan", "vocab")}
    there, here = chosen
    return [
        f"{name} is {there.get(name)!r} in {config.init_from} and {here.get(name)!r} here"
        for name in sorted((there | here).keys() - free)
        if there.get(name) != here.get(name)
    ]


PROTOCOLS = ("same_token", "nonoverlap", "sliding", "position")


def validate_evaluation(config) -> list[str]:
    """The same for configs/eval.py."""
    defaults = neighbours.config("eval")
    problems = _structure(config.to_dict(), defaults.get_config().to_dict())
    if problems:
        return problems
    ask = _Asker(problems)
    most = 2**31 - 1
    ask(whole_number, "tokens_per_call", config.tokens_per_call, at_least=1, at_most=most)
    for name in ("stride", "last"):
        ask(whole_number, name, config[name], at_least=0, at_most=most)
    for name, least in (("documents", 2), ("windows", 1)):
        if config[name] is not None:
            ask(whole_number, name, config[name], at_least=least, at_most=most)
    ask.that(
        isinstance(config.name, str) and re.fullmatch(r"[\w.+-]{0,80}", config.name) is not None,
        f"name must be letters, digits and . + - _, 80 at most; got {config.name!r}",
    )
    ask(choice, "data.part", config.data.part, ("held_out", "choose"))
    ask.that(
        config.data.part == "held_out" or not config.data.source,
        f"data.part = {config.data.part!r} is of the run's own text and has no effect with "
        f"data.source={config.data.source}",
    )
    for word in words(config.multiples) or ["nothing"]:
        ask(positive, "each of multiples", _number(word))
    for word in words(config.extensions) or ["nothing"]:
        name, colon, scale = word.partition(":")
        if name == "all":
            ask.that(not colon, f"'all' takes no scale; got {word!r}")
        elif ask(known, "extension", name, catalog.extensions()) and colon:
            if ask(positive, f"the scale of {name}", _number(scale)):
                fits = 1 <= float(scale) <= 1e6
                ask.that(fits, f"the scale of {name} must be at least 1 and at most 1e6: {word}")
            own = name in SCALELESS or name.startswith("dynamic_")
            ask.that(not own, f"{name} has a scale of its own or none; got {word!r}")
        ask.that(
            name not in ("abf", "longrope"),
            f"extension {name!r} needs options that a list of names cannot give; train with it",
        )
    for word in words(config.protocols) or ["nothing"]:
        ask(known, "protocol", word, PROTOCOLS)
    if config.wandb.mode:
        ask(choice, "wandb.mode", config.wandb.mode, WANDB_MODES)
    if config.data.source:
        ask(choice, "data.source", config.data.source, ("stdlib", "text", "jsonl", "hub"))
    needs_path = config.data.source in READ_BY["path"][0]
    ask.that(
        bool(config.data.path) == needs_path,
        "data.path goes with data.source=text, jsonl or hub; got "
        f"source={config.data.source!r}, path={config.data.path!r}",
    )
    others = {name: value for name, value in config.data.items() if name != "path"}
    _unread(others, config.data.source or "'' (the run's own text)", ask)
    for name, protocol in (("stride", "sliding"), ("last", "same_token")):
        ask.that(
            not config[name] or protocol in words(config.protocols),
            f"{name} = {config[name]} has no effect without {protocol} in protocols",
        )
    return problems


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def differences(
    saved: Mapping,
    now: Mapping,
    free: tuple[str, ...] = FREE,
    words: tuple[str, str] = ("in the workdir", "now"),
) -> list[str]:
    """Fields in which a run's saved configuration differs from one given now, but for free ones."""
    before, after = dict(_flat(saved)), dict(_flat(now))
    lines = []
    for name in sorted(before | after):
        if not _within(name, free):
            old, new = before.get(name), after.get(name)  # a field that came later is None
            if old != new and not (old != old and new != new):  # nan is itself here
                lines.append(f"{name}: {old!r} {words[0]}, {new!r} {words[1]}")
    return lines


def experiment(config) -> dict[str, Any]:
    """What two runs share that differ by chance alone: all but the seed, how often something is
    said or saved, and how it is computed."""
    fields = dict(_flat(with_defaults(config.to_dict())))
    fields["original_length"] = fields["original_length"] or fields["train_length"]
    fields["init_from"] = without_seed(str(fields["init_from"] or ""))
    how = ("seed", "model.scan", "model.remat", "model.attention")
    free = (*(name for name in FREE if name != "steps"), *how)
    return {name: value for name, value in sorted(fields.items()) if not _within(name, free)}


def with_defaults(fields: Mapping) -> dict[str, Any]:
    """A field that an older run does not have is its default."""
    base = neighbours.config("base")

    def filled(given: Mapping, default: Mapping) -> dict[str, Any]:
        inner = {
            name: filled(given[name], value)
            for name, value in default.items()
            if isinstance(value, Mapping) and isinstance(given.get(name), Mapping)
        }
        return {**default, **given, **inner}

    return filled(fields, base.get_config().to_dict())


def without_seed(name: str) -> str:
    """`rope-s0-L128` -> `rope-L128`: the names that sweeps give, over all seeds."""
    return re.sub(r"-s\d+(?=-|/|$)", "", name)


def _within(name: str, fields: Iterable[str]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for field in fields)


def _flat(tree: Mapping, prefix: str = ""):
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value


def as_json(config) -> str:
    return json.dumps(config.to_dict(), indent=1, sort_keys=True)
