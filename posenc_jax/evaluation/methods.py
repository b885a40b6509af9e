"""What an evaluation is asked to extend by: `none,pi,yarn:4,dynamic_ntk+logn` or `all`."""

from typing import NamedTuple

from posenc_jax import composition, extensions
from posenc_jax.checks import check_options
from posenc_jax.configuration import LARGEST_SCALE, words
from posenc_jax.encoding import Encoding
from posenc_jax.errors import ConfigError


class Method(NamedTuple):
    """An extension at one scale, or at that of the length read; with or without a window limit."""

    name: str  # as results name it
    scale: float | None
    limit: int | None = None  # tokens that a query sees, itself included
    written: str = ""  # with what the name leaves out; empty: the name

    def applied(self, encoding: Encoding, own: Encoding, ratio: float) -> Encoding:
        """`own` is the run as it is; other extensions start from the encoding without its own.

        The limit is handed to attention: a window is no number of the encoding here.
        """
        if self.name == "none":
            return own
        scale = ratio if self.scale is None else self.scale
        extended = extensions.extend(self.written or self.name, encoding, scale)
        return extended.replace(window=encoding.window)


def methods(text: str, encoding: Encoding, largest: float) -> list[Method]:
    """Those that fit; one that takes a scale and is given none gets the largest."""
    chosen: dict[tuple, Method] = {}  # in order, each once
    for word in words(text):
        if word == "all":
            names = extensions.fitting(encoding)
            records = extensions.records()
            # The baseline of an evaluation is a window already.
            taken = [n for n in names if not records[n].needs_options and not records[n].shown]
        else:
            fits = all(record.fits(encoding) for record, _ in extensions.named(word))
            taken = [word] if fits else []
        for one in taken:
            method = _method(one, encoding, max(1.0, largest))
            chosen.setdefault(method[:3], method)
    return list(chosen.values())


def _method(word: str, encoding: Encoding, largest: float) -> Method:
    named = extensions.named(word)
    name = extensions.canonical(word)
    if not any(part.options for _, part in named) and not any(r.shown for r, _ in named):
        return Method(name, _scale(named, largest))
    try:  # here, so that a mistake in an option is no line that is left out
        extended = extensions.extend(word, encoding, largest)
    except ValueError as error:
        raise ConfigError(f"{word}: {error}") from error
    limit = extended.window if extended.window != encoding.window else None
    if limit is None:  # it changed some layers alone, which no column tells
        name = extensions.canonical(word, columns=False)
    return Method(name, _scale(named, largest), limit, word)


def _scale(named, largest: float) -> float | None:
    """The scale of a method; None where it has none of its own."""
    if not any(record.scale == "given" for record, _ in named):
        return None
    return next((part.scale for _, part in named if part.scale is not None), largest)


def mistakes(text: str) -> list[str]:
    """What is wrong with the extensions that an evaluation is asked for, whatever its run is."""
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
            raise ValueError(f"{part.name} has a scale of its own or none; got {word!r}")
    asked = [name for name in part.options if name != "layers"]
    check_options(f"extension {part.name!r}", record.apply, asked)
