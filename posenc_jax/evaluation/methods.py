"""Parse the methods of an evaluation: `none,pi,yarn:4,dynamic_ntk+logn` or `all`."""

from collections.abc import Mapping
from typing import NamedTuple

from posenc_jax import composition, extensions
from posenc_jax.checks import check_options
from posenc_jax.config.schema import LARGEST_SCALE, words
from posenc_jax.encoding import Encoding
from posenc_jax.errors import ConfigError


class Method(NamedTuple):
    """An extension at a fixed scale or at that of the length read, with or without a window."""

    name: str  # as in results
    scale: float | None
    limit: int | None = None  # tokens that a query sees, itself included
    written: str = ""  # the full text, with what the name omits; empty: the name

    def applied(self, encoding: Encoding, own: Encoding, ratio: float) -> Encoding:
        """Extend an encoding; `none` gives `own`, the run's encoding with its own extension.

        The window is not set here: attention gets it as a limit.
        """
        if self.name == "none":
            return own
        scale = ratio if self.scale is None else self.scale
        extended = extensions.extend(self.written or self.name, encoding, scale)
        return extended.replace(window=encoding.window)


def methods(text: str, encoding: Encoding, largest: float) -> list[Method]:
    """The methods that fit; one that takes a scale and is given none gets the largest."""
    chosen: dict[tuple, Method] = {}  # in order, each once
    for word in words(text):
        if word == "all":
            names = extensions.fitting(encoding)
            records = extensions.records()
            # An evaluation has a window as its baseline already.
            taken = [n for n in names if not records[n].needs_options and not records[n].shown]
        else:
            fits = all(record.fits(encoding) for record, _ in extensions.named(word))
            taken = [word] if fits else []
        for one in taken:
            method = _method(one, encoding, max(1.0, largest))
            chosen.setdefault(method[:3], method)
    return list(chosen.values())


def left_out(text: str, encoding: Encoding) -> dict[str, str]:
    """The words that do not fit an encoding, each with the reason."""
    found = {}
    for word in words(text):
        named = [] if word == "all" else extensions.named(word)
        unfit = [record.made_for for record, _ in named if not record.fits(encoding)]
        if unfit:
            found[word] = f"made for {unfit[0]}"
    return found


def check_some_fit(text: str, unfit: Mapping[str, str], encoding: Encoding) -> None:
    """Refuse a list of which nothing fits."""
    if set(words(text)) <= set(unfit):
        raise ConfigError(
            f"extensions={text!r}: nothing fits encoding {encoding.name!r} "
            f"({in_words(unfit)}); those that do: {', '.join(extensions.fitting(encoding))}"
        )


def in_words(unfit: Mapping[str, str]) -> str:
    """`pi, ntk: made for rope; interpolate: made for learned`."""
    by_reason: dict[str, list[str]] = {}
    for word, reason in unfit.items():
        by_reason.setdefault(reason, []).append(word)
    return "; ".join(f"{', '.join(own)}: {reason}" for reason, own in by_reason.items())


def _method(word: str, encoding: Encoding, largest: float) -> Method:
    named = extensions.named(word)
    name = extensions.canonical(word)
    if not any(part.options for _, part in named) and not any(r.shown for r, _ in named):
        return Method(name, _scale(named, largest))
    try:  # early, so that a wrong option is an error and not a skipped line
        extended = extensions.extend(word, encoding, largest)
    except ValueError as error:
        raise ConfigError(f"{word}: {error}") from error
    limit = extended.window if extended.window != encoding.window else None
    if limit is None:  # it changed some layers only, which no column shows
        name = extensions.canonical(word, columns=False)
    return Method(name, _scale(named, largest), limit, word)


def _scale(named, largest: float) -> float | None:
    """The scale of a method; None where it has none of its own."""
    if not any(record.scale == "given" for record, _ in named):
        return None
    return next((part.scale for _, part in named if part.scale is not None), largest)


def mistakes(text: str) -> list[str]:
    """Mistakes in the extensions of an evaluation that do not depend on its run."""
    wrong: list[str] = []
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
            wrong.append(str(error))
    return wrong


def _check(record: extensions.Extension, part: composition.Part, word: str) -> None:
    if part.scale is not None:
        if not 1 <= part.scale <= LARGEST_SCALE:
            raise ValueError(f"the scale of {part.name} must be at least 1 and at most 1e6: {word}")
        if record.scale != "given":
            raise ValueError(f"{part.name} takes no scale; got {word!r}")
    asked = [name for name in part.options if name != "layers"]
    check_options(f"extension {part.name!r}", record.apply, asked)
