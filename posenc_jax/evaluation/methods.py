"""Parse the methods of an evaluation: `none,pi,yarn:4,dynamic_ntk+logn` or `all`."""

from collections.abc import Mapping
from typing import NamedTuple

from posenc_jax import composition, extensions
from posenc_jax.checks import check_options
from posenc_jax.config.resolve import reached
from posenc_jax.config.schema import LARGEST_SCALE, words
from posenc_jax.encoding import Encoding
from posenc_jax.runs.subject import Subject
from posenc_jax.runtime.errors import ConfigError


class Method(NamedTuple):
    """An extension at a fixed scale or the scale of the length read, with or without a window."""

    name: str  # in results
    scale: float | None
    limit: int | None = None  # tokens that a query sees, itself included
    written: str = ""  # as typed, with options that the name omits; empty: the name

    def applied(self, encoding: Encoding, own: Encoding, ratio: float) -> Encoding:
        """Extend an encoding; `none` returns `own`, the run's encoding with its own extension.

        The window is not set here: at lengths within it the encoding without it is read.
        """
        length = round(ratio * encoding.train_length)
        if self.name == "none":
            return own.for_rows(length)
        scale = ratio if self.scale is None else self.scale
        extended = extensions.extend(self.written or self.name, encoding, scale)
        return extended.replace(window=encoding.window).for_rows(length)


def methods(text: str, encoding: Encoding, largest: float) -> list[Method]:
    """Parse the methods that fit an encoding; the largest scale replaces a missing one."""
    chosen: dict[tuple, Method] = {}  # in order, without duplicates
    for word in words(text):
        if word == "all":
            names = extensions.fitting(encoding)
            records = extensions.records()
            # The window is the baseline of every evaluation already.
            fitting = [n for n in names if not records[n].needs_options and not records[n].shown]
        else:
            fits = all(record.fits(encoding) for record, _ in extensions.named(word))
            fitting = [word] if fits else []
        for name in fitting:
            method = _method(name, encoding, max(1.0, largest))
            chosen.setdefault(method[:3], method)
    return list(chosen.values())


def left_out(text: str, encoding: Encoding) -> dict[str, str]:
    """Extensions of a list that do not fit an encoding, each with the reason."""
    reasons = {}
    for word in words(text):
        named = [] if word == "all" else extensions.named(word)
        unfit = [record.made_for for record, _ in named if not record.fits(encoding)]
        if unfit:
            reasons[word] = f"made for {unfit[0]}"
    return reasons


def check_some_fit(text: str, unfit: Mapping[str, str], encoding: Encoding) -> None:
    """Refuse a list in which no extension fits."""
    if set(words(text)) <= set(unfit):
        raise ConfigError(
            f"extensions={text!r}: none fits encoding {encoding.name!r} "
            f"({in_words(unfit)}); those that do: {', '.join(extensions.fitting(encoding))}"
        )


def in_words(unfit: Mapping[str, str]) -> str:
    """Group extensions by reason: `pi, ntk: made for rope; interpolate: made for learned`."""
    by_reason: dict[str, list[str]] = {}
    for word, reason in unfit.items():
        by_reason.setdefault(reason, []).append(word)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def unfit(text: str, subject: Subject) -> dict[str, str]:
    """The extensions of a list that do not fit a run, each with the reason; not all of them."""
    reasons = left_out(text, subject.plain)
    if not subject.extensible:
        reason = "the run was trained with a resampled table"
        reasons |= {word: reason for word in words(text) if word != "none"}
    check_some_fit(text, reasons, subject.plain)
    return reasons


def extended_encoding(
    subject: Subject, extension: str, max_length: int | None
) -> tuple[Encoding, int]:
    """The encoding of a run with an extension, and the length of the longest row it reads.

    An extension that depends on the length read is applied once, for that length.
    """
    if len(words(extension)) != 1 or extension == "all":
        raise ConfigError(f"give one extension; got {extension!r}")
    wrong = mistakes(extension)
    if wrong:
        raise ConfigError("; ".join(wrong))
    unfit(extension, subject)
    scales = [part.scale for _, part in extensions.named(extension) if part.scale is not None]
    if max_length is None and extension != "none" and not scales:
        raise ConfigError(f"extension {extension!r} has no scale; give a maximum length")
    if max_length is None:
        max_length = reached(scales[0], subject.original) if scales else subject.trained
    ratio = max_length / subject.original
    (method,) = methods(extension, subject.plain, ratio)
    encoding = method.applied(subject.plain, subject.parts.encoding, ratio)
    if encoding.reach is not None and max_length > encoding.reach:
        raise ConfigError(
            f"encoding {subject.plain.name!r} with extension {extension!r} reaches "
            f"{encoding.reach} positions; the maximum length is {max_length}"
        )
    return encoding.windowed(method.limit), max_length


def _method(word: str, encoding: Encoding, largest: float) -> Method:
    named = extensions.named(word)
    name = extensions.canonical(word)
    if not any(part.options for _, part in named) and not any(r.shown for r, _ in named):
        return Method(name, _scale(named, largest))
    try:  # here, so that a wrong option is an error and not a skipped method
        extended = extensions.extend(word, encoding, largest)
    except ValueError as error:
        raise ConfigError(f"{word}: {error}") from error
    limit = extended.window if extended.window != encoding.window else None
    if limit is None:  # the extension changed some layers only, which no column shows
        name = extensions.canonical(word, columns=False)
    return Method(name, _scale(named, largest), limit, word)


def _scale(named, largest: float) -> float | None:
    """Scale of a method; None if none of its extensions takes one."""
    if not any(record.scale == "given" for record, _ in named):
        return None
    return next((part.scale for _, part in named if part.scale is not None), largest)


def mistakes(text: str) -> list[str]:
    """Mistakes in the extensions of an evaluation that do not depend on the run."""
    problems: list[str] = []
    for word in words(text) or ["nothing"]:
        try:
            if word == "all":
                continue
            if word.startswith("all:"):
                raise ValueError(f"'all' takes no scale; got {word!r}")
            named = extensions.named(word)
            for record, part in named:
                _check(record, part, word)
        except ValueError as error:
            problems.append(str(error))
    return problems


def _check(record: extensions.Extension, part: composition.Part, word: str) -> None:
    if part.scale is not None:
        if not 1 <= part.scale <= LARGEST_SCALE:
            raise ValueError(f"the scale of {part.name} must be at least 1 and at most 1e6: {word}")
        if record.scale != "given":
            raise ValueError(f"{part.name} takes no scale; got {word!r}")
    options = [name for name in part.options if name != "layers"]
    check_options(f"extension {part.name!r}", record.apply, options)
