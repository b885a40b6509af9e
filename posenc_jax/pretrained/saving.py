"""Write a model in the layout of a published family, as transformers and others read it."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from models import Config
from posenc_jax import composition, extensions
from posenc_jax.checks import known
from posenc_jax.composition import Part
from posenc_jax.config import Training, building
from posenc_jax.config.resolve import reached, saved_config
from posenc_jax.data import tokenizer
from posenc_jax.encoding import Encoding, partition
from posenc_jax.pretrained import families
from posenc_jax.pretrained.adopt import configured
from posenc_jax.pretrained.families import (
    FAMILIES,
    FULL,
    LOCAL_BASE,
    MPT_MLP,
    WINDOWED,
    Family,
)
from posenc_jax.pretrained.rope import ORIGINAL
from posenc_jax.pretrained.sources import SINGLE
from posenc_jax.runs.parameters import trained_arrays
from posenc_jax.runs.subject import load_run, places_of_base
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import read_json, write_atomically
from posenc_jax.runtime.trees import by_path
from posenc_jax.schemes._rotation import frequencies
from posenc_jax.schemes.randomized import Randomized
from posenc_jax.schemes.rope import RoPE

LAYOUTS = tuple(name for name in FAMILIES if not name.endswith("_gguf"))
FORMATS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}  # of safetensors
COMPUTED = ("scan", "remat", "dtype", "attention", "lora")  # fields that no file states
UNREAD = ["its config.json would not be read:"]
UNSTATED = ", which no rope type states"
NARROWED = ("window", "chunk", "temperature", "topk", "logn")

LENGTHS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")  # of families

Tensors = Mapping[str, Callable[[], np.ndarray]]


def _checked(layout: str | Sequence[str]) -> Sequence[str]:
    names = [layout] if isinstance(layout, str) else layout
    try:
        return [known("layout", name, LAYOUTS) for name in names]
    except ValueError as error:
        raise ConfigError(str(error)) from error


def lineage_of(workdir: Path) -> Iterator[tuple[Training, dict[str, Any]]]:
    """Configuration and status of a run and of those that it started from, if they are there."""
    with suppress(OSError, ValueError):
        config = saved_config(workdir)
        yield config, read_json(workdir / "status.json")
        if config.init_from:
            source, beside = places_of_base(config, workdir)
            yield from lineage_of(source if source.exists() else beside)


def save_run(
    workdir: Path, folder: Path, step: int | None = None, layout: str | Sequence[str] = "auto"
) -> str:
    """Write a run, with its own extension, and return the layout: `auto` is the one from which it
    was adopted, if that states the run, else the first that does."""
    lineage = list(lineage_of(workdir))
    layout = layouts_of(lineage) if layout == "auto" else layout
    _checked(layout)  # before weights are read
    model, encoding, config, encoder = load_run(workdir, step)
    # Training in shorter rows, with the extension that the run had, takes no length from it.
    alike = [*itertools.takewhile(lambda one: one[0].extension == config.extension, lineage)]
    longest = max([config.train_length, *(before.train_length for before, _ in alike)])
    if isinstance(encoder, tokenizer.Unavailable):
        raise ConfigError(f"{workdir} has no tokenizer to write: {encoder.why}")
    name = own_extension(config)
    facts: dict[str, Any] = {"prefix": config.data.prefix, "train_length": longest}
    kind = save(model, encoding, encoder, folder, layout=layout, extension=name, **facts)
    if any("adopted" in status for _, status in alike):  # the length that the original states
        config = read_json(folder / "config.json")
        config |= dict.fromkeys(set(LENGTHS) & set(config), longest)
        write_atomically(folder / "config.json", json.dumps(config, indent=2))
    return kind


def own_extension(config: Training) -> str:
    """The extension of a run as the rope type of its file states it; none: no type does."""
    own = config.extension
    if own.name not in TYPES:
        return "none"
    options = {name: value for name, value in own.options.items() if name in (*NUMBERS, "truncate")}
    return composition.text([Part(own.name, own.scale, options)])


def save(
    model: Any,
    encoding: Encoding,
    encoder: tokenizer.Bytes | tokenizer.Learned,
    folder: Path | str,
    *,
    prefix: int | None = None,
    train_length: int | None = None,
    layout: str | Sequence[str] = LAYOUTS,
    extension: str = "none",
) -> str:
    """Write config.json, model.safetensors and tokenizer.json; return the layout.

    `layout` is a model_type, or several, of which the first that states the model is written. The
    tokenizer puts `prefix` before every text. The longest length stated is L times the scale of the
    extension, or `train_length` if that is longer. `extension`, such as yarn:4:beta_fast=16, is the
    name by which the file states frequencies; without it those of published defaults are
    recognised, and others are stated pair by pair. A ConfigError lists what has no form.
    """
    folder, encoding = Path(folder), _as_read(encoding)
    config = config_with(layout, model.config, encoding, train_length or 0, extension)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    kind = str(model.embed.embedding.dtype)
    tensors = _tensors(model, encoding, FAMILIES[config["model_type"]])
    write_tensors(folder / SINGLE, tensors)
    written, settings = _tokenizer(encoder, prefix)
    write_atomically(folder / "tokenizer.json", written)
    write_atomically(folder / "tokenizer_config.json", json.dumps(settings, indent=2))
    config |= {"torch_dtype": kind, "dtype": kind}
    # The defaults of transformers are tokens of other vocabularies.
    config |= {"bos_token_id": prefix, "eos_token_id": None, "pad_token_id": None}
    write_atomically(folder / "config.json", json.dumps(config, indent=2))
    return config["model_type"]


def config_with(
    layout: str | Sequence[str], model: Config, encoding: Encoding, longest: int, extension: str
) -> dict[str, Any]:
    """config.json of a model in the first of some layouts that states it; a ConfigError lists what
    the nearest one has no form for."""
    tried = []
    for name in _checked(layout):
        tried.append(_stated(name, model, encoding, longest, extension))
        if not tried[-1][1]:
            break
    # One that cannot be read with such settings is far.
    config, problems = min(tried, key=lambda one: (one[1][:1] == UNREAD, len(one[1])))
    if problems:
        kind = config["model_type"]
        raise ConfigError(f"layout {kind} has no form for:\n  " + "\n  ".join(problems))
    return config


def layouts_of(lineage: Iterable[tuple[Training, Mapping[str, Any]]]) -> list[str]:
    """Layouts of a run, that from which it was adopted first."""
    kinds = [status["adopted"]["model_type"] for _, status in lineage if "adopted" in status]
    return sorted(LAYOUTS, key=lambda name: name not in kinds)


def _as_read(encoding: Encoding) -> Encoding:
    """The encoding in evaluations, with trained frequencies at their values."""
    if isinstance(encoding, Randomized) and not encoding.evenly:
        outer = {name: getattr(encoding, name) for name in NARROWED}
        if outer == {name: getattr(Encoding, name) for name in NARROWED}:
            encoding = encoding.inner.replace(layers=encoding.layers)
    if isinstance(encoding, RoPE) and encoding.alpha is not None and encoding.layers is None:
        encoding = encoding.replace(inv_freq=encoding.freq, alpha=None)
    return encoding


def _stated(
    layout: str, model: Config, encoding: Encoding, longest: int, extension: str
) -> tuple[dict[str, Any], list[str]]:
    """config.json in a layout, and what is lost: what it says, read again, is compared."""
    family, ours = FAMILIES[layout], _explicit(model)
    sizes = {theirs: ours[name] for name, theirs in family.sizes.items()}
    sizes |= {name: sizes[name] ** (1 / exponent) for name, exponent in family.powers.items()}
    if float(sizes.get("query_pre_attn_scalar", 0.5)).is_integer():  # transformers wants an int
        sizes["query_pre_attn_scalar"] = int(sizes["query_pre_attn_scalar"])
    if MPT_MLP in sizes:
        sizes["expansion_ratio"] = sizes.pop(MPT_MLP) // model.width
    sizes |= {name: allowed[0] for name, allowed in family.only.items()}
    config: dict[str, Any] = {"model_type": layout, "architectures": [family.architecture]}
    stated, found, refused = sizes, [], []
    for form in _positions(encoding, model, longest, extension, family.by_kind):
        if form["sliding_window"] is None and "layer_types" in family.usual:
            del form["sliding_window"]  # unused, and transformers lacks it where it is null
        stated = sizes | {name: value for name, value in form.items() if name in family.usual}
        try:
            found = _lost(config | _nested(stated), model, encoding)
        except ValueError as error:
            refused = [*UNREAD, str(error)]
            continue
        if not all(problem.endswith(UNSTATED) for problem in found) or not found:
            return config | _nested(stated), found  # no other form helps
    return config | _nested(stated), found or refused


def _nested(stated: Mapping[str, Any]) -> dict[str, Any]:
    """`attn_config.alibi` is a key of an inner object."""
    nested: dict[str, Any] = {}
    for name, value in stated.items():
        group, _, key = name.rpartition(".")
        (nested.setdefault(group, {}) if group else nested)[key] = value
    return nested


def _explicit(model: Config) -> dict[str, Any]:
    """Fields of a model, with the sizes that it leaves open."""
    return dataclasses.asdict(model) | {
        "kv_heads": model.groups,
        "head_dim": model.head_size,
        "mlp_width": model.hidden_size,
        "vocab": model.vocab_size,
        "score_size": float(model.score_size or model.head_size),
    }


def _lost(config: dict[str, Any], model: Config, encoding: Encoding) -> list[str]:
    """What differs in the model that is read from a config.json."""
    family = families.family_of(config)
    settings = families.settings_of(config, family)
    read = configured(family, settings, family.position(settings), None)
    there = building.extended(read, building.plain(read, jax.random.key(0)))
    ours, theirs = _explicit(model), _explicit(read.model)
    problems = [
        f"model.{name} = {value!r}, only {theirs[name]!r}"
        for name, value in ours.items()
        if not _equal(value, theirs[name]) and name not in COMPUTED
    ]
    for index in range(model.layers):
        problems += _unlike(encoding.layer(index), there.layer(index))
    return list(dict.fromkeys(problems))


def _equal(one: Any, other: Any) -> bool:
    """Powers of a factor, as Granite's, are rounded."""
    is_close = isinstance(one, float) and isinstance(other, float)
    return math.isclose(one, other, rel_tol=1e-14) if is_close else one == other


def _unlike(ours: Encoding, theirs: Encoding) -> list[str]:
    """What differs in the encodings of a layer."""
    if type(ours) is not type(theirs):
        kind = f" ({type(ours).__name__})" if ours.name == theirs.name else ""
        return [f"encoding {ours.name!r}{kind}, only {theirs.name!r} with fixed numbers"]
    if any(getattr(ours, name) != getattr(theirs, name) for name in NARROWED):
        return ["windows, temperatures, logn and top-k"]
    if isinstance(ours, RoPE) and isinstance(theirs, RoPE):
        same = ours.inv_freq.shape == theirs.inv_freq.shape and ours.gain.shape == theirs.gain.shape
        if not same or ours.layout != theirs.layout or ours.alpha is not None:
            return ["RoPE of part of a head, per head, interleaved or trained"]
        if ours.imaginary or ours.stretch is not None:
            return ["RoPE with imaginary heads or temperatures by query"]
    here, there = (by_path(partition(one)[1]) for one in (ours, theirs))
    return [
        f"{name} of encoding {ours.name!r}{UNSTATED}"
        for name, leaf in here.items()
        if name != "base" and not _alike(leaf, there.get(name))
    ]


def _alike(one: Any, other: Any) -> bool:
    return other is not None and one.shape == other.shape and np.allclose(one, other, 2e-7, 0)


def _positions(
    encoding: Encoding, model: Config, trained: int, extension: str, by_kind: bool
) -> Iterator[dict[str, Any]]:
    """The keys of every family that say where tokens stand, in one form after another."""
    layers = [encoding.layer(index) for index in range(model.layers)]
    ropes = [layer for layer in layers if isinstance(layer, RoPE)]
    windows = [layer.window for layer in layers]
    kinds = [FULL if window is None else WINDOWED for window in windows]
    keys: dict[str, Any] = {
        "layer_types": kinds,
        "sliding_window": next(filter(None, windows), None),
        "use_sliding_window": WINDOWED in kinds,
        "no_rope_layers": [int(isinstance(layer, RoPE)) for layer in layers],
    }
    slopes = getattr(layers[0], "slopes", None)
    if slopes is not None:
        keys["attn_config.alibi_bias_max"] = round(-math.log2(np.min(slopes)))
    if not ropes:
        # A resampled table states what it reaches.
        length = encoding.reach or max(trained, encoding.train_length)
        yield keys | dict.fromkeys(LENGTHS, length)
        return
    wide = next((rope for rope in ropes if rope.window is None), ropes[0])
    narrow = next((rope for rope in ropes if rope.window is not None), wide)
    share = 2 * wide.inv_freq.shape[-1] / model.head_size
    for longest, settings in _rotary(wide, extension):
        theta, kind = settings["rope_theta"], settings["rope_type"]
        local = {"rope_type": "default", "rope_theta": _decimal(np.max(narrow.base))}
        parameters = settings | ({} if share == 1 else {"partial_rotary_factor": share})
        yield keys | {
            **dict.fromkeys(LENGTHS, max(trained, longest)),
            **({} if kind == "default" else {ORIGINAL: encoding.train_length}),
            "rope_theta": theta,
            "rotary_emb_base": theta,
            "rotary_pct": share,
            "partial_rotary_factor": share,
            LOCAL_BASE: local["rope_theta"],
            "rope_scaling": None if kind == "default" else parameters,
            "rope_parameters": {FULL: parameters, WINDOWED: local} if by_kind else parameters,
        }


def _decimal(number: Any) -> float:
    """The shortest decimal number that is equal in float32 but for its rounding."""
    exact = float(number)
    rounded = (float(f"{exact:.{digits}g}") for digits in range(1, 17))
    return next(one for one in rounded if np.isclose(one, exact, 1e-7, 0))


def _rotary(rope: RoPE, extension: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The longest length and rotary settings: by the base alone, by the rope type of an extension,
    and by a factor per pair (LongRoPE's form), which has every extension with fixed numbers."""
    freq, length = np.asarray(rope.inv_freq, np.float64), rope.train_length
    base = _decimal(np.max(rope.base))
    if freq.ndim > 1 or rope.gain.ndim or not np.all(freq > 0):  # which no type states
        yield length, {"rope_type": "default", "rope_theta": base}
        return
    gain = float(rope.gain)
    pairs = len(freq)
    built = frequencies(base, 2 * pairs)
    scale = max(1.0, _decimal(built[-1] / freq[-1]))
    place = np.arange(pairs)  # float32 rounds each frequency, so the base is fitted to all
    grown = float(np.exp(-pairs * (place @ np.log(freq)) / max(1, place @ place)))
    rounded = [float(f"{grown:.{digits}g}") for digits in (4, 7, 9)]
    theta = next((t for t in (base, *rounded, grown) if _is_series(freq, t)), None)
    short = freq if rope.short is None else np.asarray(rope.short, np.float64)
    if gain == 1 and theta is not None and short is freq:
        # NTK's scale is round and the base that it makes is not; abf has no scale.
        is_ntk = theta not in (base, rounded[0]) and scale == float(f"{scale:.4g}")
        yield reached(scale if is_ntk else 1, length), {"rope_type": "default", "rope_theta": theta}
    for factor, settings in [*_of_extension(extension), *_usual(scale)]:
        kind, settings = settings["rope_type"], settings | {"factor": factor, "rope_theta": base}
        if kind != "linear":
            settings[ORIGINAL] = length
        if kind == "longrope":
            settings["short_factor"], settings["long_factor"] = (
                (built / divided).tolist() for divided in (short, freq)
            )
        usual = 0.1 * math.log(factor) + 1 if kind == "yarn" else None
        if kind == "longrope" or usual and not np.isclose(gain, usual, 2e-7, 0):
            settings["attention_factor"] = _decimal(gain)
        if kind == "longrope" or short is freq:
            yield reached(factor, length), settings


KEYS = {"low": "low_freq_factor", "high": "high_freq_factor"}  # options of other names
TYPES = {"pi": "linear", "yarn": "yarn", "llama3": "llama3", "longrope": "longrope"}
NUMBERS = ("low", "high", "beta_fast", "beta_slow")


def _of_extension(text: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """The factor and the settings of an extension that has a rope type of its own."""
    for record, part in extensions.named(text):
        if record.name in TYPES:
            usual = {name: option.default for name, option in record.options.items()}
            values = usual | dict(part.options)
            stated = {KEYS.get(one, one): float(values[one]) for one in NUMBERS if one in values}
            stated |= {name: values[name] for name in ("truncate",) if name in values}
            yield float(part.scale or 1), {"rope_type": TYPES[record.name]} | stated


def _usual(scale: float) -> Iterator[tuple[float, dict[str, Any]]]:
    yield scale, {"rope_type": "linear"}
    yield scale, {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    yield scale, {"rope_type": "yarn"}
    yield scale, {"rope_type": "yarn", "truncate": False}
    yield scale, {"rope_type": "longrope"}


def _is_series(freq: np.ndarray, base: float) -> bool:
    """True if these float32 are the frequencies of a base."""
    return np.allclose(freq, frequencies(base, 2 * len(freq)), rtol=2e-7, atol=0)


def _tensors(model: Any, encoding: Encoding, family: Family) -> Tensors:
    """The arrays of a file by name, each made when it is called for."""
    ours = {f"model.{name}": leaf for name, leaf in by_path(model).items()}
    ours |= {f"encoding.{name}": leaf for name, leaf in trained_arrays(encoding).items()}
    tensors, heads = {}, model.config.heads
    taken: set[tuple[str, int]] = set()
    for name, (row, parameter, layer) in families.places(family.names, model.config.layers).items():
        paths = row.paths(parameter)
        if paths[0] not in ours or (paths[0], layer) in taken:  # one of two names of the output
            continue
        taken.add((paths[0], layer))

        def made(row=row, paths=paths, layer=layer) -> np.ndarray:
            return row.array([_merged(ours, path, layer) for path in paths], heads)

        tensors[family.name(name)] = made
    return tensors


def _merged(ours: Mapping[str, Any], path: str, layer: int) -> np.ndarray:
    """An array of a layer, with its low-rank part."""

    def of(name: str) -> np.ndarray:
        return np.asarray(ours[name][layer] if name.startswith("model.blocks.") else ours[name])

    array, (module, _, parameter) = of(path), path.rpartition(".")
    if parameter != "kernel" or f"{module}.lora_up" not in ours:
        return array
    low = 2 * (of(f"{module}.lora_down") @ of(f"{module}.lora_up"))
    return (array.astype(np.float32) + low).astype(array.dtype)


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Write a file of safetensors with one array in memory at a time: its header, whose length is
    bounded before, comes last."""
    room = 8 * sum(len(name) // 8 + 32 for name in ["__metadata__", *tensors])
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    with path.open("wb") as file:
        file.seek(8 + room)
        for name, make in tensors.items():
            array, begin = np.ascontiguousarray(make()), file.tell() - 8 - room
            array.tofile(file)
            header[name] = {"dtype": FORMATS[str(array.dtype)], "shape": array.shape}
            header[name]["data_offsets"] = [begin, begin + array.nbytes]
        file.seek(0)
        file.write(room.to_bytes(8, "little") + json.dumps(header).encode().ljust(room))


def _tokenizer(
    encoder: tokenizer.Bytes | tokenizer.Learned, prefix: int | None
) -> tuple[str, dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json."""
    import tokenizers

    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings["add_bos_token"] = prefix is not None
    own = encoder.tokenizer if isinstance(encoder, tokenizer.Learned) else tokenizer.bytes_as_bpe()
    if prefix is not None:
        own = tokenizers.Tokenizer.from_str(own.to_str())  # a copy
        settings["bos_token"] = first = own.id_to_token(prefix)
        own.post_processor = tokenizers.processors.TemplateProcessing(
            single=[first, "$A"], special_tokens=[(first, prefix)]
        )
    return own.to_str(), settings
