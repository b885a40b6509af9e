"""Fill in what a recipe leaves open, from another run, and the options that a scheme has.

Open fields come from the saved run when resuming, and from `init_from` when fine-tuning.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posenc_jax import composition, registry
from posenc_jax.composition import Part
from posenc_jax.config import schema
from posenc_jax.config.schema import Training
from posenc_jax.fields import fields as described
from posenc_jax.fields import mistakes
from posenc_jax.runtime.errors import ConfigError, Stop
from posenc_jax.runtime.files import expanded, read_json

FORMAT = 4  # of config.json and of a checkpoint's card
TOKENIZER = "tokenizer.json"  # that a run keeps
# A recipe leaves a group open, to be taken from a run, that lacks one of these.
NEEDED = {
    "model": tuple(field.name for field in described(schema.Model)),
    "encoding": ("name",),
    "data": ("source",),
}
SINGLE = ("train_length", "batch_size", "learning_rate")
# Encodings around another one, whose weights they fit: without change until they are trained.
NEUTRAL = ("randomized", "ssmax", "plus")

Fields = dict[str, Any]  # of a configuration, as recipes and config.json have them


def saved_config(workdir: Path) -> Training:
    """The configuration of a run; a field that it lacks has its default."""
    refuse_unadopted(workdir)
    fields = read_json(workdir / "config.json")
    missing = {"seed", "train_length", *NEEDED} - set(fields)
    if missing:
        raise ValueError(f"no {', '.join(sorted(missing))}")
    check_format(fields.pop("format", None))
    if wrong := mistakes(Training, fields):
        raise ValueError("; ".join(wrong.values()))
    kept, data = workdir / TOKENIZER, fields["data"]
    if kept.is_file() and not _is_here(data.get("tokenizer", "bytes")):
        fields["data"] = data | {"tokenizer": str(kept)}
    return schema.from_fields(fields)


def existing_config(workdir: Path) -> Training | None:
    """The configuration of the run in a folder; None where there is none."""
    refuse_unadopted(workdir)
    if not (workdir / "config.json").exists():
        return None
    try:
        return saved_config(workdir)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Stop(f"cannot read {workdir / 'config.json'} as a run's: {error}") from error


def refuse_unadopted(place: str | Path) -> None:
    """Refuse a pretrained model where a run is needed, with the command that adopts it."""
    path, other = Path(place), False
    with suppress(OSError, ValueError, TypeError):
        other = "model_type" in read_json(path / "config.json")
    if other or (path.is_file() and path.suffix == ".gguf"):
        raise ConfigError(
            f"{place} is a pretrained model, not a run; adopt it first: python scripts/adopt.py "
            f"{place} --workdir=RUN"
        )


def check_format(written: Any) -> None:
    if written != FORMAT:
        raise ValueError(
            f"it has format {written!r}, and this version reads {FORMAT}: use the version of "
            "posenc-jax that wrote it"
        )


def original_length(config: Training) -> int:
    """L of the formulas: the run's own, or that of the run it starts from."""
    return config.original_length or config.train_length


def trained_length(config: Training) -> int:
    """The longest length a run is trained at."""
    return max(config.train_length, original_length(config))


def resolve(
    fields: Fields, saved: Training | None = None, planned: Mapping[Path, Training] = {}
) -> Fields:
    """The fields with every value that training reads; `saved` is the run that is resumed, and
    `planned` has runs that are not there yet."""
    fields = dict(fields)
    fields["extension"] = _extension(fields["extension"])
    if saved is not None and not fields.get("init_from"):  # given when the run began
        fields["init_from"] = saved.init_from
    fields = _from_source(fields, saved, planned)
    usual = {field.name: field.default for field in described(schema.Encoding)}
    fields["encoding"] = usual | encoding_defaults(fields["encoding"]) | fields["encoding"]
    tokenizer = fields["data"].get("tokenizer")
    if saved is not None and not _is_here(tokenizer):
        kept = saved.data.source.as_fields().get("tokenizer")
        fields["data"] = fields["data"] | ({"tokenizer": kept} if kept else {})
    return fields


def _is_here(tokenizer: str | None) -> bool:
    return tokenizer in (None, "bytes") or expanded(tokenizer).exists()


def encoding_defaults(encoding: Mapping[str, Any]) -> Fields:
    """The options of an encoding, and of the one inside it, with their defaults."""
    from posenc_jax import schemes  # imports jax

    name = str(encoding.get("name"))
    if not registry.exists("encoding", name):  # `check` reports it
        return {}

    def defaults_of(name: str) -> Fields:
        options = schemes.options_of(name).values()
        return {one.name: one.default for one in options if one.default is not one.empty}

    defaults = defaults_of(name)
    inner = str(encoding.get("inner", defaults.get("inner")))
    if schemes.takes_inner(name) and registry.exists("encoding", inner):  # not `fire:hidden=16`
        defaults = defaults_of(inner) | defaults
    return defaults


def _extension(given: Fields) -> Fields:
    """Split `yarn:8:beta_fast=16` into fields; a composition keeps its options in its name."""
    given = {name: value for name, value in given.items() if value is not None}
    try:
        parts = composition.parts(given["name"])
    except (KeyError, ValueError):  # `check` reports it
        return given
    scales = {part.scale for part in parts} - {None}
    beside = given.get("scale", 1)
    if len(scales) > 1 or (scales and beside not in (1, *scales)):
        raise ConfigError(
            f"extension.name = {given['name']!r} and extension.scale = {beside} give different "
            "scales; give one"
        )
    given["scale"] = next(iter(scales), beside)
    if len(parts) > 1:
        given["name"] = composition.text([Part(p.name, None, p.options) for p in parts])
        return given
    (part,) = parts
    twice = sorted(set(part.options) & set(given) | set(part.options) & {"name", "scale"})
    if twice:
        raise ConfigError(f"extension.name = {given['name']!r} sets {twice[0]!r} a second time")
    return given | {"name": part.name} | dict(part.options)


def _from_source(
    fields: Fields, saved: Training | None, planned: Mapping[Path, Training]
) -> Fields:
    """The fields with those that are open taken from the run in `init_from`, or from itself."""
    groups = [name for name, needed in NEEDED.items() if not set(needed) <= set(fields[name])]
    single = [name for name in SINGLE if fields[name] is None]
    if fields.get("init_from"):
        fields["init_from"] = str(expanded(fields["init_from"]))
        if "data" not in groups and "tokenizer" not in fields["data"]:  # another text, named alone
            groups.append("data")
        source = saved or source_of(fields["init_from"], planned)
        if fields["extension"]["name"] == "none":  # that of the run stays
            if unused := sorted(set(fields["extension"]) - {"name", "scale"}):
                raise ConfigError(
                    f"extension.{unused[0]} has no effect with extension.name=none, which keeps "
                    "the run's own; name the extension that is to take it"
                )
            fields["extension"] = schema.as_fields(source)["extension"]
        fields["original_length"] = fields.get("original_length") or original_length(source)
        if fields["encoding"].get("name") in NEUTRAL:
            fields["encoding"] = _around(fields, source)
    elif groups or single:
        source = saved
        if source is None:
            raise ConfigError(
                f"init_from is missing: this recipe takes {', '.join([*groups, *single])} from a "
                "run; give --config.init_from=RUN"
            )
    else:
        return fields
    taken = schema.as_fields(source)
    for name in groups:
        given = {field: value for field, value in fields[name].items() if value is not None}
        fields[name] = (_beside(given, taken["data"]) if name == "data" else taken[name]) | given
    lengths = taken if saved is not None else _lengthened(fields, source)
    return fields | {name: lengths[name] for name in single}


def _around(fields: Fields, source: Training) -> Fields:
    """The fields of an encoding with that of the source inside, unless another one is given."""
    given, inside = fields["encoding"], source.encoding
    name, options = inside.name, dict(inside.options)
    made = {"per_layer": inside.per_layer, "sink": inside.sink, "inner": name, **given}
    (part,) = composition.parts(made["inner"])
    if given["name"] == name:
        (own,) = composition.parts(options["inner"])
        same = own.name == part.name and part.options.items() <= own.options.items()
        if same or "inner" not in given:
            made["inner"] = options["inner"]
        made = options | made
    elif part.name == name and not part.options and "inner" not in options:
        made = options | made
    elif part.name == name or part.name in NEUTRAL and "inner" not in part.options:
        usual = encoding_defaults({"name": name})
        own = {n: value for n, value in options.items() if usual.get(n) != value}
        own |= {"inner": name} if part.name != name else {}
        made["inner"] = composition.text([Part(part.name, None, own | dict(part.options))])
    scale, length = fields["extension"]["scale"], fields["original_length"]
    if given["name"] == "randomized" and (name != "randomized" or scale != source.extension.scale):
        made |= {"inner_length": length, "max_position": reached(scale, length)} | given
    return made


def source_of(workdir: str, planned: Mapping[Path, Training]) -> Training:
    """The configuration of the run in `init_from`."""
    if not (Path(workdir) / "config.json").exists() and Path(workdir).resolve() in planned:
        return planned[Path(workdir).resolve()]
    try:
        return saved_config(Path(workdir))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"init_from must be the workdir of a run; {workdir!r} holds no config.json that can be "
            f"read: {error if isinstance(error, ValueError) else type(error).__name__}"
        ) from error


def _beside(given: Fields, taken: Fields) -> Fields:
    """Fields of the other run's `data` that go with those given here."""
    another = {"tokens", "mixture", "source"} & set(given)
    if not another or given.get("source") == taken["source"]:
        return taken
    common = schema.data_defaults()
    return {name: value for name, value in taken.items() if name in common and name != "source"}


def reached(scale: float, original: int) -> int:
    """The longest length within a scale, which may be rounded to float32, times L."""
    return math.floor(scale * original * (1 + 2**-23))


def _lengthened(fields: Fields, source: Training) -> Fields:
    """Length, batch and rate for training at the length the extension reaches, at as many tokens a
    step and a fifth of the rate."""
    reach = reached(fields["extension"]["scale"], fields["original_length"])
    encoding = fields["encoding"]
    jumps = encoding.get("positions") == "chunks" or encoding.get("tail")  # beyond the rows
    if jumps or fields["extension"] == schema.as_fields(source)["extension"]:
        reach = source.train_length
    length = fields["train_length"] or reach
    return {
        "train_length": length,
        "batch_size": max(1, source.batch_size * source.train_length // length),
        "learning_rate": source.learning_rate / 5,
    }
