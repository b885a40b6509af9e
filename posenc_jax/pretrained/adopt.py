"""Adopt a pretrained model: read its files completely, or refuse them, and write a run."""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from posenc_jax import fields as described
from posenc_jax.config import Training, building, schema
from posenc_jax.config.resolve import (
    FORMAT,
    TOKENIZER,
    encoding_defaults,
    original_length,
    reached,
)
from posenc_jax.data import tokenizer
from posenc_jax.encoding import Encoding
from posenc_jax.pretrained import families, sources
from posenc_jax.pretrained.families import Family, Position, Row
from posenc_jax.pretrained.sources import Source
from posenc_jax.runs import parameters
from posenc_jax.runs.checkpoints import PARAMETERS, Checkpoints, total_digest
from posenc_jax.runs.workdir import Workdir, keep_trained_on
from posenc_jax.runtime import backend, terminal
from posenc_jax.runtime.errors import DONE, ConfigError, DataError
from posenc_jax.runtime.files import locked, write_atomically

DTYPES = ("float32", "bfloat16", "float16")  # of weights, which are held as they are in the file
STEP = 1  # of the only checkpoint
ADAPTER = "adapter_config.json"  # of PEFT

Arrays = dict[str, np.ndarray]  # by our path: model.norm.scale
Empty = Callable[..., np.ndarray]  # makes an array of a shape and a type, as np.empty


class Pretrained(NamedTuple):
    """A pretrained model, its own rope extension included in the encoding."""

    model: parameters.models.Model
    encoding: Encoding
    tokenizer: tokenizer.Learned
    facts: dict[str, Any]


class Adopted(NamedTuple):
    """A pretrained model as a run has it."""

    config: Training
    params: dict[str, Arrays]
    tokenizer: tokenizer.Learned
    facts: dict[str, Any]


def load(
    source: str | Path, train_length: int | None = None, weights: str | None = None
) -> Pretrained:
    """Load a folder of safetensors, a .gguf file or an id of the Hugging Face Hub."""
    adopted = read(source, train_length, weights=weights)
    parts = parameters.blank(adopted.config).replace(parameters.on_device(adopted.params))
    return Pretrained(parts.model, parts.encoding, adopted.tokenizer, adopted.facts)


def adopt(
    source: str | Path,
    workdir: Path,
    train_length: int | None = None,
    dtype: str | None = None,
    weights: str | None = None,
) -> dict[str, Any]:
    """Write a pretrained model as a run that is done; return its facts."""
    run = Workdir(workdir)
    if run.config() is not None:
        raise ConfigError(f"{workdir} holds a run already; give another --workdir")
    if (Path(source) / ADAPTER).exists():
        raise ConfigError(f"{source} is an adapter; name the run of its base too: --base=RUN")
    adopted = read(source, train_length, dtype, weights, _on_disk(Path(workdir).absolute()))
    encoder, kept = adopted.tokenizer, str((run / TOKENIZER).absolute())
    origin = dataclasses.replace(adopted.config.data.source, tokenizer=kept)
    data = dataclasses.replace(adopted.config.data, source=origin)
    config = dataclasses.replace(adopted.config, data=data)
    run.create()
    write_atomically(run / TOKENIZER, encoder.tokenizer.to_str())
    unknown = np.zeros(0, np.uint64)
    write_run(run, config, adopted.params, encoder.hash, unknown, adopted=adopted.facts)
    return adopted.facts


def write_run(
    run: Workdir,
    config: Training,
    params: dict[str, Arrays],
    tokenizer_hash: str,
    digests: np.ndarray,  # of the documents that it was trained on
    base: str | None = None,
    **facts: Any,
) -> None:
    """Write weights that were trained elsewhere as a run that is done; `base` is the digest of
    those it began with."""
    with locked(run.path, "another program"):
        state = {PARAMETERS: params}
        belongs = {
            "data": "",  # of a text that is not known
            "tokenizer": tokenizer_hash,
            "config": schema.as_fields(config),
            "format": FORMAT,
            "trained_on": keep_trained_on(run.path, digests),
        } | ({} if base is None else {"base": base})
        with closing(Checkpoints(run.path, keep=1)) as checkpoints:
            checkpoints.save(STEP, state, belongs)
        run.claim(config)
        run.step_on_disk = STEP
        sizes = {group: sum(a.size for a in arrays.values()) for group, arrays in params.items()}
        run.facts = {
            "command": " ".join(sys.argv),
            "machine": backend.machine() | {"cores": backend.cores()},
            "parameters": sizes | {"total": sum(sizes.values())},
        } | facts
        run.status("done", DONE, step=STEP, digest=total_digest(state))


def read(
    source: str | Path,
    train_length: int | None = None,
    dtype: str | None = None,
    weights: str | None = None,
    empty: Empty = np.empty,
) -> Adopted:
    """Read a pretrained model; `dtype` is that of its computation, by default bfloat16 where all
    weights are, and `weights` that of its matrices, by default the file's. `empty` makes the
    arrays."""
    if weights not in (None, "bfloat16"):
        raise ConfigError(f"weights must be 'bfloat16' or None, for the file's; got {weights!r}")
    found = sources.read_source(source)
    try:
        family = families.family_of(found.config)
        settings = families.settings_of(found.config, family)
        position = family.position(settings)
        vocab = settings[family.sizes["vocab"]]
        if found.tokenizer.vocab > vocab > (found.prefix or 0):
            found = found._replace(tokenizer=found.tokenizer.within(vocab))
        config = _config(found, family, settings, position, train_length)
    except ValueError as error:
        raise ConfigError(f"{source}: {str(error)[:1000]}") from error
    if wrong := building.mistakes(config):
        raise ConfigError(_listed(source, wrong))
    terminal.say(f"reading {len(found.arrays)} arrays")
    params, dtypes = _filled(source, found, family, config, weights, empty)
    dtype = dtype or ("bfloat16" if dtypes <= {"bfloat16"} else "float32")
    model = dataclasses.replace(config.model, dtype=dtype)
    config = dataclasses.replace(config, model=model)
    size = sum(array.size for group in params.values() for array in group.values())
    facts = _facts(source, found, position, config, dtypes, size)
    return Adopted(config, params, found.tokenizer, facts)


def _config(
    found: Source,
    family: Family,
    settings: Mapping[str, Any],
    position: Position,
    train_length: int | None,
) -> Training:
    """The configuration of the run."""
    config, encoder = configured(family, settings, position, train_length), found.tokenizer
    vocab, width = config.model.vocab_size, config.model.width
    if encoder.vocab > vocab:
        raise ValueError(
            f"its tokenizer has {encoder.vocab} tokens, more than the {vocab} of the model"
        )
    tables = [read().shape for name, read in found.arrays.items() if name.endswith("wpe.weight")]
    wanted = [(original_length(config), width)] if config.encoding.name == "learned" else []
    if tables != wanted:  # before one of that size is made
        raise ValueError(f"its tables of positions have shapes {tables}, not {wanted}")
    described = schema.as_fields(config)
    described["data"] |= {"tokenizer": encoder.file, "prefix": found.prefix}
    return schema.from_fields(described)


def configured(
    family: Family, settings: Mapping[str, Any], position: Position, train_length: int | None
) -> Training:
    """Model, encoding and extension of a config.json; a ValueError lists what is wrong."""
    length, original = _lengths(position, train_length)
    fields = schema.training().to_dict()
    fields["model"] |= {ours: settings[theirs] for ours, theirs in family.sizes.items()}
    fields["model"] |= family.options
    fields["encoding"] |= encoding_defaults(position.encoding) | position.encoding
    fields["extension"] |= position.rope.extension if position.rope else {}
    fields |= {"train_length": length, "steps": STEP, "batch_size": 1}
    fields["original_length"] = None if original == length else original
    fields["data"] = {"source": "unknown"}
    if wrong := described.mistakes(Training, fields):
        raise ValueError("; ".join(wrong.values()))
    return schema.from_fields(fields)


def planned(source: str | Path) -> Training:
    """The configuration of the run that a source becomes, from its config.json alone."""
    config = sources.config_of(source)
    try:
        family = families.family_of(config)
        settings = families.settings_of(config, family)
        return configured(family, settings, family.position(settings), None)
    except ValueError as error:
        raise ConfigError(f"{source}: {str(error)[:1000]}") from error


def _lengths(position: Position, train_length: int | None) -> tuple[int, int]:
    """The longest length it was trained at, and L of the formulas."""
    longest, rope = position.longest or train_length, position.rope
    if longest is None:
        raise ValueError("config.json states no length that it was trained at; give --train_length")
    original, trained = train_length or longest, longest
    if position.encoding["name"] == "learned":  # one vector per position
        original = longest
    if rope is not None and rope.extension:
        original = rope.original or longest
        if rope.kind != "llama3":  # 8 for 8,192 to 131,072 tokens
            trained = min(longest, reached(rope.factor, original))
    if train_length is not None and train_length < original:
        raise ValueError(f"--train_length={train_length} is below {original}, L of its encoding")
    return train_length or trained, original


def _on_disk(workdir: Path) -> Empty:
    """Makes arrays in files without names, beside a workdir that may not be there yet: memory holds
    them only while it has room."""
    folder = next(path for path in (workdir, *workdir.parents) if path.is_dir())

    def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        with TemporaryFile(dir=folder) as file:  # the array keeps it
            return np.memmap(file, dtype, "w+", shape=shape)

    return empty


def _filled(
    source: str | Path,
    found: Source,
    family: Family,
    config: Training,
    weights: str | None,
    empty: Empty,
) -> tuple[dict[str, Arrays], set[str]]:
    """Every parameter from the arrays of the source, each of which is held once."""
    shapes = {
        f"{group}.{name}": leaf.shape
        for group, leaves in parameters.blank(config).params().items()
        for name, leaf in leaves.items()
    }
    filling = _Filling(family.names, config, shapes, found.arrays, empty)
    for name, array in found.arrays.items():
        filling.take(name, partial(_held, array, weights))
    if problems := filling.problems + filling.untied():
        raise DataError(_listed(source, problems))
    groups: dict[str, Arrays] = {"model": {}, "encoding": {}}
    for path in list(filling.arrays):
        group, _, name = path.partition(".")
        array = filling.arrays.pop(path)
        # Tables of an encoding are added to embeddings in float32.
        groups[group][name] = array.astype(np.float32) if group == "encoding" else array
    return groups, filling.dtypes


def _held(read: Callable[[], np.ndarray], weights: str | None) -> np.ndarray:
    """An array as it is held: matrices may have another type than in the file."""
    array = read()
    changed = weights and array.ndim > 1 and str(array.dtype) in DTYPES
    return array.astype(weights) if changed else array


class _Filling:
    """Our arrays while they are filled, and what does not fit."""

    def __init__(
        self,
        names: Mapping[str, Row],
        config: Training,
        shapes: Mapping,
        files: Mapping,
        empty: Empty,
    ):
        places = families.places(names, config.model.layers)
        prefixes = {name: next(filter(name.startswith, families.PREFIXES), "") for name in files}
        self.places = {n: places.get(n.removeprefix(prefix)) for n, prefix in prefixes.items()}
        self.config, self.shapes, self.empty = config, shapes, empty
        self.arrays: Arrays = {}
        self.filled: dict[tuple[str, int], str] = {}  # the array that filled a layer of ours
        self.tied: Arrays = {}  # output projections in a file beside the embedding they equal
        self.dtypes: set[str] = set()  # of the arrays in the file
        self.problems = self.missing()  # by names, before memory is taken

    def take(self, name: str, read) -> None:
        if name.endswith(families.IGNORED):
            return
        place = self.places[name]
        if place is None:
            self.problems.append(f"{name}: no place for it")
            return
        row, parameter, layer = place
        array = read()
        if str(array.dtype) not in DTYPES:
            self.problems.append(f"{name}: its type is {array.dtype}, not {', '.join(DTYPES)}")
            return
        self.dtypes.add(str(array.dtype))
        if row.ours == ("model.unembed",) and self.config.model.tied:
            self.tied[name] = array
            return
        try:
            parts = row.arrays(parameter, array, self.config.model.heads, self.config.model.groups)
        except ValueError:
            count, shape = len(row.ours), array.shape
            self.problems.append(f"{name}: its shape {shape} cannot be split into {count}")
            return
        for path, part in parts.items():
            self._put(name, path, layer, part)

    def _put(self, name: str, path: str, layer: int, part: np.ndarray) -> None:
        shape = self.shapes.get(path)
        if shape is None:
            self.problems.append(f"{name}: no place for it")
            return
        stacked = path.startswith("model.blocks.")
        wanted = shape[1:] if stacked else shape
        if part.shape != wanted:
            self.problems.append(f"{name}: its shape gives {part.shape} for {path}, not {wanted}")
            return
        if (path, layer) in self.filled:
            self.problems.append(f"{name}: {path} is filled by {self.filled[path, layer]} already")
            return
        self.filled[path, layer] = name
        if self.problems and path not in self.arrays:
            return
        if path not in self.arrays:
            self.arrays[path] = self.empty(shape, part.dtype)
        held = self.arrays[path]
        if held.dtype != part.dtype:
            advice = "; --weights=bfloat16 makes them alike" if part.ndim > 1 else ""
            types = f"its type is {part.dtype}, other layers' {held.dtype}"
            self.problems.append(f"{name}: {types}{advice}")
            return
        held[layer if stacked else ...] = part

    def untied(self) -> list[str]:
        embedding = self.arrays.get("model.embed.embedding")
        return [
            f"{name}: it differs from the embedding, with which tie_word_embeddings joins it"
            for name, array in self.tied.items()
            if embedding is not None and not np.array_equal(array, embedding)
        ]

    def missing(self) -> list[str]:
        problems, places = [], filter(None, self.places.values())
        filled = {
            (f"{module}.{row.parameters[parameter]}", layer)
            for row, parameter, layer in places
            for module in row.ours
        }
        for path, shape in self.shapes.items():
            layers = range(shape[0]) if path.startswith("model.blocks.") else range(1)
            empty = [layer for layer in layers if (path, layer) not in filled]
            if empty:
                shown = ", ".join(map(str, empty[:8])) + (", ..." if len(empty) > 8 else "")
                where = f" in layers {shown}" if len(layers) > 1 else ""
                problems.append(f"{path}: nothing in the files sets it{where}")
        return problems


def _listed(source: str | Path, problems: list[str]) -> str:
    return f"{source} cannot be adopted:\n  " + "\n  ".join(problems)


def _facts(
    source: str | Path,
    found: Source,
    position: Position,
    config: Training,
    dtypes: set[str],
    size: int,
) -> dict[str, Any]:
    """Facts to compare with the model card; a misread checkpoint shows here."""
    rope, held, kinds = position.rope, "+".join(sorted(dtypes)), " + ".join(found.quantised)
    facts: dict[str, Any] = {"source": str(source), "model_type": found.config["model_type"]}
    facts |= {"parameters": size, "layers": config.model.layers, "width": config.model.width}
    facts |= {"vocab": config.model.vocab, "tokens": found.tokenizer.vocab}
    if rope is not None:
        facts |= {"theta": rope.base, "rope_type": rope.kind, "factor": rope.factor}
        facts |= {"fraction": rope.fraction}
        facts |= {name: position.encoding.get(name) for name in ("window", "pattern", "local_base")}
    facts |= {
        "L": original_length(config),
        "train_length": config.train_length,
        "eps": config.model.norm_eps,
        "tied": config.model.tied,
        "prefix": found.prefix,
        "weights": f"{held} from {kinds}: quantised, a model of its own" if kinds else held,
        "computed in": config.model.dtype,
        "digest": found.digest,
    }
    if rope is not None and rope.kind == "dynamic":
        facts["beyond L"] = "extension dynamic_ntk, which an evaluation names"
    return facts
