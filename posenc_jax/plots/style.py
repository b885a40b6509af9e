"""The house style: sizes, colours, marks, axes and file formats of pictures."""

import colorsys
import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posenc_jax import composition
from posenc_jax.checks import positive
from posenc_jax.display import literal
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.runtime.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Look = dict[str, Any]  # options of matplotlib
# Colours after Okabe and Ito, and Tol. No palette has twenty colours that colour-blind readers can
# distinguish, so each has its own mark; similar marks (round ones, diamonds) have distant colours.
ENCODINGS = {
    "rope": ("#0072B2", "o"),
    "alibi": ("#D55E00", "s"),
    "sinusoidal": ("#E69F00", "^"),
    "nope": ("#000000", "D"),
    "learned": ("#CC79A7", "v"),
    "t5": ("#009E73", "P"),
    "kerple_log": ("#56B4E9", "X"),
    "fire": ("#882255", "*"),
    "xpos": ("#332288", "h"),
    "kerple_power": ("#999933", "<"),
    "sandwich": ("#AA4499", ">"),
    "randomized": ("#777777", "p"),
    "fox": ("#4A0DF2", "d"),
    "hybrid": ("#44AA99", "x"),
    "ssmax": ("#6699CC", "+"),
    "cope": ("#DDAA33", "1"),
    "relative": ("#117733", "2"),
    "dape": ("#EE3377", "3"),
    "selective_rope": ("#33BBEE", "4"),
    "stick_breaking": ("#BB5566", "_"),
    "pope": ("#EE7733", "|"),
    "retention": ("#88CCEE", "8"),
    "fope": ("#CC3311", "."),
    "plus": ("#775500", "H"),
}
EXTENSIONS = {
    "none": ("#0072B2", "o"),
    "pi": ("#D55E00", "s"),
    "ntk": ("#E69F00", "^"),
    "ntk_by_parts": ("#999933", "<"),
    "yarn": ("#009E73", "P"),
    "llama3": ("#CC79A7", "v"),
    "longrope": ("#882255", "*"),
    "abf": ("#56B4E9", "X"),
    "interpolate": ("#009E73", "P"),
    "clamp": ("#D55E00", "s"),
    "logn": ("#EE3377", ">"),
    "drop": ("#332288", "h"),
    "temperature": ("#BBCC33", "d"),
    "window": ("#555555", "|"),
    "topk": ("#0072B2", "_"),
    "rerope": ("#000000", "D"),
    "leaky_rerope": ("#777777", "p"),
    "self_extend": ("#690DF2", "x"),
    "dca": ("#661100", "+"),
    "lm_infinite": ("#999933", "H"),
    "streaming": ("#33BBEE", "8"),
}
FOLLOWING = {f"dynamic_{name}": (name, "--") for name in ("pi", "ntk", "yarn")}
FOLLOWING |= {f"stepped_{name}": (name, "-.") for name in ("ntk", "yarn")}
EXTENSIONS |= {name: EXTENSIONS[static] for name, (static, _) in FOLLOWING.items()}
NAMES = {"rope": "RoPE", "alibi": "ALiBi", "nope": "NoPE", "t5": "T5", "fire": "FIRE", "fox": "FoX"}
NAMES |= {"kerple_log": "KERPLE log", "kerple_power": "KERPLE power", "sandwich": "Sandwich"}
NAMES |= {"xpos": "xPos", "randomized": "randomised", "ssmax": "SSMax", "cope": "CoPE"}
NAMES |= {"dape": "DAPE", "selective_rope": "Selective RoPE", "pope": "PoPE", "fope": "FoPE"}
NAMES |= {"pi": "PI", "ntk": "NTK", "ntk_by_parts": "NTK by parts", "yarn": "YaRN"}
NAMES |= {"llama3": "Llama 3"}
NAMES |= {"longrope": "LongRoPE", "abf": "ABF", "logn": "log-n", "topk": "top-k", "dca": "DCA"}
NAMES |= {"rerope": "ReRoPE", "leaky_rerope": "Leaky ReRoPE", "self_extend": "Self-Extend"}
NAMES |= {"lm_infinite": "LM-Infinite"}
SPARE = ("1", "2", "3", "4", "_")  # marks of names without a look above
OTHERS = ("--", ":", "-.", (0, (3, 1, 1, 1, 1, 1)))  # methods with the same look
SPARSE: Look = dict(markevery=0.12, markersize=4)  # lines with a point per token
NULL: Look = dict(color="0.2", linestyle=(0, (1, 1.6)), linewidth=1.2)
ORDERLESS: Look = dict(color="0.55", linestyle="--", linewidth=1.5, zorder=1)
FRESH: Look = dict(color="0.2", linestyle=(0, (2.5, 1.6)), linewidth=1.2)
STREAMING: Look = dict(color="0.2", linestyle=(0, (5, 2, 1, 2, 1, 2)), linewidth=1.1)
GREY: Look = dict(color="0.5", marker="")  # of baselines
WINDOW: Look = dict(color="0.2", linestyle=(0, (5, 2, 1, 2)), linewidth=1.1)

ASPECT = 0.72  # height / width of a narrow panel
LINE = 0.17  # inches per line of a legend
LETTERS = 15  # letters per inch in a legend
AXIS = 0.4  # least share of a panel that is its horizontal axis
LONGEST = 44  # letters per line of a name beside the panels

RC: Any = {
    "font.size": 9,
    "figure.titlesize": 10,
    "axes.titlesize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.92",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.markersize": 5,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters, not outlines, as publishers require
    "svg.hashsalt": "posenc-jax",  # makes the text of a picture reproducible
}
PRINTED: Any = dict.fromkeys(("font.size", "figure.titlesize", "axes.titlesize"), 8)


@contextmanager
def styled() -> Iterator[None]:
    """Draw with matplotlib in the house style."""
    import matplotlib

    with matplotlib.rc_context(RC | PRINTED if width() else RC):
        yield


class Form(NamedTuple):
    """File format and width of pictures; text keeps its size at any width."""

    format: str = "png"
    width: float | None = None  # inches; None: for a screen


FORMATS = ("png", "pdf", "svg")
USUAL = Form()
_form: ContextVar[Form] = ContextVar("form", default=USUAL)


@contextmanager
def printed(form: Form) -> Iterator[None]:
    """Draw pictures in another form within this context, such as for a paper's column."""
    if form.width is not None:
        positive("width", form.width)
    token = _form.set(form)
    try:
        yield
    finally:
        _form.reset(token)


def width() -> float | None:
    """The width of pictures for a paper, whose captions replace titles; None for a screen."""
    return _form.get().width


def look_of(name: str, looks: Mapping[str, tuple[str, str]] = ENCODINGS) -> tuple[str, str]:
    """Colour and mark of a name; those of a new name are derived from a hash of it."""
    if name in looks:
        return looks[name]
    number = zlib.crc32(name.encode())
    rgb = colorsys.hls_to_rgb(number % 360 / 360, 0.4, 0.6)
    colour = "#" + "".join(f"{round(255 * channel):02X}" for channel in rgb)
    return colour, SPARE[number // 360 % len(SPARE)]


def written(name: str) -> str:
    """An encoding or extension as papers write it; another name as it is."""
    if name in FOLLOWING:
        kind, _, static = name.partition("_")
        return f"{kind} {written(static)}"
    known, mark, more = name.partition(",")  # "rope, oracle"
    if known in ENCODINGS or known in EXTENSIONS:
        known = NAMES.get(known, known.replace("_", " "))
    return f"{known}{mark}{more}"


def with_method(name: str, method: str) -> str:
    """Name of a group with a method, as papers write them."""
    if method == "none" or method in BASELINES:
        return written(name) + (f", {BASELINES[method]}" if method in BASELINES else "")
    words = []
    for part in composition.parts(method):
        scale = "" if part.scale is None else f" by {part.scale:g}"
        options = ", ".join(f"{option} {value}" for option, value in part.options.items())
        words.append(written(part.name) + scale + (f" ({options})" if options else ""))
    return f"{written(name)} with {' and '.join(words)}"


def look_of_encoding(name: str) -> Look:
    return _look(*look_of(name), "-")


def look_of_method(extension: str) -> Look:
    """Look of an extension among those of one encoding; composed ones are dotted."""
    first = composition.parts(extension)[0].name
    dash = ":" if extension != first else FOLLOWING.get(first, ("", "-"))[1]
    return _look(*look_of(first, EXTENSIONS), dash)


def looks_of_methods(encoding: str, methods: Sequence[str]) -> list[Look]:
    """Looks of the methods of one encoding: `none` in that of the encoding, baselines in grey."""
    looks = []
    for method in methods:
        if method == "none":
            looks.append(look_of_encoding(encoding))
        elif method in BASELINES:
            looks.append({"window": WINDOW, "streaming": STREAMING}.get(method, FRESH) | GREY)
        else:
            parts = [part._replace(scale=None) for part in composition.parts(method)]
            looks.append(look_of_method(composition.text(parts)))
    return distinct(looks)


def distinct(looks: Sequence[Look]) -> list[Look]:
    """Looks of lines in one picture: a repeated look gets another dash, or another mark once all
    dashes are used."""
    used: list[Look] = []
    for look in looks:
        marks = (look.get("marker", ""), *SPARE)
        candidates = (
            look | {"marker": mark, "linestyle": dash}
            for mark in marks
            for dash in (look.get("linestyle", "-"), *OTHERS)
        )
        used.append(next((candidate for candidate in candidates if candidate not in used), look))
    return used


def _look(color: str, marker: str, linestyle: Any) -> Look:
    return dict(color=color, marker=marker, linestyle=linestyle)


def panels(
    rows: int = 1,
    columns: int = 1,
    size: tuple[float, float] | None = None,
    *,
    tall: bool = False,
    **share: Any,
) -> "tuple[Figure, list[Axes]]":
    """Panels of equal size; `tall` ones keep their height if a width is set."""
    from matplotlib.figure import Figure

    if size is None:
        size = (8, 4.5) if rows == columns == 1 else (1.5 + 3.6 * columns, 3.6 * rows)
    if (wide := width()) is not None:
        size = (wide, size[1] if tall else ASPECT * wide * rows / columns)
    figure = Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **share).flat)


def finish(figure: "Figure", title: str = "") -> None:
    """Write the title, except in a paper, where the caption has it, and the legend of all panels
    below them in as many columns as fit; the figure grows, so that panels keep their size."""
    if title and not width():
        figure.suptitle(title)
    pairs = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
    listed = {name: handle for panel in pairs for handle, name in panel}
    if not listed:
        return
    room = int(figure.get_figwidth() * LETTERS)
    names = [folded(name, room - 8) for name in listed]
    longest = max(len(line) for name in names for line in name.split("\n"))
    columns = max(1, min(len(names), room // (longest + 8)))
    lines = sum(name.count("\n") + 1 for name in names)
    figure.set_figheight(figure.get_figheight() + LINE * -(-lines // columns))
    figure.legend(list(listed.values()), names, loc="outside lower center", ncols=columns)


def folded(name: str, letters: int) -> str:
    """Break a name into lines of at most so many letters, after a separator where possible."""
    lines = [""]
    for word in re.findall(r"[^\s+:,/-]*[\s+:,/-]*", name):
        for piece in (word[i : i + letters] for i in range(0, len(word), letters)):
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > letters:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.strip() for line in lines).replace("$", r"\$")  # else it is math


def spaced(places: Sequence[float], gap: float) -> list[float]:
    """Places between 0 and 1 moved as little as possible to be `gap` apart, in their order."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(places, kind="stable")
    below = gap * np.arange(len(order))
    lowest = isotonic_regression(np.asarray(places)[order] - below).x
    moved = np.clip(lowest, 0, max(0, 1 - gap * (len(order) - 1))) + below
    return moved[np.argsort(order)].tolist()


def inches_of(axes: "Axes") -> float:
    """Width of a panel with its labels."""
    spec, figure = axes.get_subplotspec(), axes.figure
    return figure.bbox.width / figure.dpi / (spec.get_gridspec().ncols if spec else 1)


def length_axis(
    axes: "Axes",
    lengths: Sequence[int],
    trained: Sequence[int] = (),
    step: int = 1,
    share: float = AXIS,
) -> None:
    """Make the horizontal axis logarithmic in tokens, with a dotted line at every trained length.

    A single length is that of a window, whose ticks are every `step`-th power of two.
    """
    from matplotlib.ticker import NullLocator

    if len(lengths) == 1:
        lengths = [2**i for i in range(0, int(lengths[0]).bit_length(), step)]
    axes.set_xscale("log")
    numbered = _numbered(lengths, trained, share * inches_of(axes))
    axes.set_xticks(lengths, [f"{n:,}" if n in numbered else "" for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    words: dict[str, Any] = dict(rotation=90)
    if width():  # a panel is hardly higher than the label
        words = dict(rotation=0)
    for length in trained:
        axes.axvline(length, color="0.6", linewidth=1, linestyle=":")
        first = length <= min(lengths)  # the axis and its numbers are to the left
        side: dict[str, Any] = dict(ha="left" if first else "right", va="top")
        text = "L" if width() else "trained length"
        annotate(axes, text, (length, 0.985), (3 if first else -3, 0), **words, **side)


def _numbered(lengths: Sequence[int], trained: Sequence[int], inches: float) -> set[int]:
    """Lengths with a number on a logarithmic axis, the trained ones and the longest first; the
    numbers of the others would touch one of these."""
    octave = inches / max(1.0, math.log2(max(lengths) / min(lengths)))
    numbered: set[int] = set()
    for length in [*(n for n in trained if n in lengths), max(lengths), *lengths]:
        if all(
            abs(math.log2(length / other)) * octave > 0.045 * len(f"{length:,}{other:,}")
            for other in numbered
        ):
            numbered.add(length)
    return numbered


def annotate(
    axes: "Axes", text: str, at: tuple[float, float], offset: tuple[float, float], **options: Any
) -> None:
    """Write grey text beside a line; `at` is in data along one axis, a fraction of the other."""
    look: dict[str, Any] = dict(xycoords=("data", "axes fraction"), va="top", ha="right") | options
    axes.annotate(text, at, offset, textcoords="offset points", color="0.4", fontsize=8, **look)


def formed(path: Path) -> Path:
    """Path of a picture in the current format."""
    return path.with_suffix(f".{_form.get().format}")


@styled()
def save(figure: "Figure", path: Path) -> Path:
    """Save a picture in the current format and return its path, whose suffix may change."""
    path = formed(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


READABLE = 76  # pixels per inch on a page, below which letters are too small
VALUE = "value:"  # of the address of a point, which becomes its attribute data-value


@styled()
def svg(figure: "Figure", name: str, title: str) -> str:
    """Return a figure as an svg element whose ids begin with the name."""
    stream = io.StringIO()
    engine = figure.get_layout_engine()
    if engine is not None:  # laid out here, so that saving does not draw everything twice
        engine.execute(figure)
        figure.set_layout_engine("none")
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    pointed = rf'<a xlink:href="{VALUE}([^"]*)"[^>]*>(.*?)</a>'
    text = re.sub(pointed, r'<g data-value="\1">\2</g>', text, flags=re.S)
    text = re.sub(r' (width|height)="[^"]*"', "", text, count=2)  # those of the element itself
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    least = f'style="min-width: {READABLE * figure.get_figwidth():.0f}px"'
    return text.replace("<svg", f'<svg role="img" {least} aria-label="{escape(title)}"', 1)


def spread(shades: int) -> list[str]:
    """Greys from light to black, for ordered lines."""
    return [str(round(v, 3)) for v in np.linspace(0.75, 0.0, shades + 1)[1:]]


CAPTIONS = "captions.md"


def unpaired(over: object) -> str:
    """Explain bands and bars over `20 documents` or seeds."""
    return (
        f"Bands and bars are 95% intervals over {over}, of each line alone and unpaired: lines "
        "whose bands overlap may still differ; scripts/compare.py pairs them."
    )


def paired(over: object) -> str:
    """Explain bars of lines that are compared with the best."""
    return (
        "Bars are 95% intervals of the difference to the best line of that length, paired over "
        f"{over}: one that leaves out the best line is significant as a single comparison."
    )


def write_captions(path: Path, captions: Mapping[Path, str]) -> None:
    """Write a paragraph per picture; without pictures, remove the file."""
    path.unlink(missing_ok=True)
    if captions:
        paragraphs = (
            f"**{picture.name}** {literal(words)}\n" for picture, words in captions.items()
        )
        write_atomically(path, "\n".join(paragraphs))
