"""Build the encoding of a configuration on the host, and report what is wrong with it."""

from contextlib import suppress
from fnmatch import fnmatchcase

import jax

import models
from posenc_jax import extensions, schemes
from posenc_jax.attention import ring
from posenc_jax.config import trained
from posenc_jax.config.resolve import original_length, reached
from posenc_jax.config.schema import Training
from posenc_jax.encoding import Dims, Encoding, trained_mask
from posenc_jax.layers import check_capped
from posenc_jax.runtime.trees import by_path


def plain(config: Training, key: jax.Array) -> Encoding:
    """The encoding without the run's own extension."""
    encoding = config.encoding
    build = schemes.build_per_layer if encoding.per_layer else schemes.build
    return build(encoding.name, dims(config), key, **encoding.options, sink=encoding.sink)


def dims(config: Training) -> Dims:
    model = config.model
    return Dims(
        model.heads,
        model.head_size,
        model.width,
        original_length(config),
        model.layers,
        model.rotary_dim,
    )


def extended(config: Training, encoding: Encoding) -> Encoding:
    extension = config.extension
    return extensions.extend(extension.name, encoding, float(extension.scale), **extension.options)


def resamples(config: Training) -> bool:
    """True if the run's own extension made another table, which no other can start from."""
    named = extensions.named(config.extension.name)
    return any(record.kind.name == "table" for record, _ in named)


def mistakes(config: Training) -> list[str]:
    """Errors of schemes and extensions for a configuration whose numbers are valid."""
    problems, built = [], None
    try:
        built = plain(config, jax.random.key(0))
        if config.sequence > 1:
            ring.check(built)
        if config.model.score_cap is not None:
            check_capped(built)
    except ValueError as error:
        problems.append(str(error))
    if built is not None and not any(jax.tree.leaves(trained_mask(built))):
        lacks = f"encoding {built.name!r} has no trained arrays"
        if config.encoding_rate != 1:
            problems.append(f"encoding_rate = {config.encoding_rate} has no effect: {lacks}")
        if config.trains == trained.NONE:
            problems.append(f"trains = {trained.NONE} trains nothing: {lacks}")
    if config.trains:
        shapes = jax.eval_shape(lambda: models.make(config.model, jax.random.key(0)))
        try:
            trained.parts_of(by_path(shapes), config.trains)
        except ValueError as error:
            problems.append(f"trains: {error}")
    return problems + _of_extension(config, built)


def untrained_parts(config: Training, source: Training) -> list[str]:
    """Low-rank parts that begin from the seed and are not trained: no checkpoint holds them."""
    if config.model.lora is None or source.model.lora is not None:
        return []
    shapes = by_path(jax.eval_shape(lambda: models.make(config.model, jax.random.key(0))))
    with suppress(ValueError):  # of a pattern, which `mistakes` reports
        own = trained.parts_of(shapes, trained.pattern_of(config))
        left = [n for n in shapes if fnmatchcase(n, trained.LORA) and n not in own]
        if left:
            return [f"trains leaves {left[0]} as it began; train {trained.LORA} beside it"]
    return []


def _of_extension(config: Training, encoding: Encoding | None) -> list[str]:
    name, scale = config.extension.name, float(config.extension.scale)
    try:
        records = [record for record, _ in extensions.named(name)]
    except ValueError as error:
        return [str(error)]
    problems = [
        f"extension.name: {record.name!r} follows the length read; train with {_static(record)}"
        for record in records
        if record.scale == "read"
    ]
    problems += [
        f"extension.name: {record.name!r} is for evaluations; train without it"
        for record in records
        if not record.trains
    ]
    takes_scale = any(record.scale != "none" for record in records)
    if scale != 1 and not takes_scale:
        problems.append(
            f"extension.scale = {scale} has no effect with extension.name={name}; name one that "
            "takes a scale, such as yarn"
        )
    if encoding is None:
        return problems
    try:
        built = extended(config, encoding)
    except ValueError as error:
        return [*problems, str(error)]
    return problems or _of_length(config, built, takes_scale)


def _static(record: extensions.Extension) -> str:
    """The extension with the same formula at a given scale, in words."""
    for name, other in extensions.records().items():
        if other.apply is record.apply and other.scale == "given":
            return f"{name!r} and a scale"
    return "one that takes a scale, such as yarn, and leave this one to evaluations"


def _of_length(config: Training, encoding: Encoding, takes_scale: bool) -> list[str]:
    length, original = config.train_length, original_length(config)
    name, scale = config.extension.name, config.extension.scale
    # Llama 3.1 was trained at twice that: its scale is not the ratio of two lengths.
    if takes_scale and name != "llama3" and length > reached(scale, original):
        return [
            f"train_length = {length} is beyond scale x L = {scale:g} x {original} = "
            f"{scale * original:g}, which extension {name!r} reaches; raise extension.scale or "
            "lower train_length"
        ]
    if encoding.reach is not None and length > encoding.reach:
        return [
            f"train_length = {length} is beyond the {encoding.reach} positions that encoding "
            f"{encoding.name!r} reaches; {encoding.remedy}"
        ]
    try:
        jax.eval_shape(lambda: encoding.positions(length, jax.random.key(0)))
    except ValueError as error:
        return [str(error)]
    return []
