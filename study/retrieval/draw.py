"""Draw answers.png and shipped.png, accuracy by distance: python -m study.retrieval.draw"""

from collections.abc import Sequence

import numpy as np

from posenc_jax.plots import style
from study import pictures
from study.cells import STUDY
from study.retrieval.tables import ADDED, FAR, SWEEP, accuracy

PARTS = ("1-16", "17-32", "33-64", "65-128", "129-256", "257-512")
METHODS = [  # encoding, method, name
    ("randomized", "none", "randomised positions"),
    ("rope", "yarn:8", "RoPE + YaRN"),
    ("nope", "none", "NoPE"),
    ("fire", "none", "FIRE"),
    ("alibi", "none", "ALiBi"),
    ("rope", "none", "RoPE"),
    ("fox", "none", "forget gates"),
]
ADDITIONS = {  # to RoPE, with the encoding whose colour the line has
    "rotation of 3/4 of the pairs (p-RoPE)": ("p-RoPE", "xpos"),
    "trained frequencies": ("trained frequencies", "learned"),
    "a trained sink": ("trained sink", "alibi"),
    "a trained scale of scores (SSMax)": ("SSMax", "t5"),
}


def by_distance(sweep: str, run: str, method: str) -> list:
    return [accuracy(sweep, run, method, part) for part in PARTS]


@style.styled()
def draw(name: str, title: str, lines: Sequence[pictures.Drawn]) -> None:
    figure, (axes,) = style.panels(1, 1, pictures.SIZE)
    axes.set_ylim(0, 1.03)
    axes.set_xticks(range(len(PARTS)), PARTS)
    axes.axvline(2.5, color="0.6", linewidth=1, linestyle=":")
    axes.axhline(1 / 6, color="0.6", linewidth=1)
    style.annotate(axes, "guess", (0, 1 / 6 - 0.01), (0, 0), ha="left", xycoords="data")
    style.annotate(axes, "L", (2.5, 0.03), (4, 0), ha="left", va="bottom")
    axes.set_xlabel(f"tokens back to the answer, of {FAR}")
    axes.set_ylabel("accuracy")
    pictures.named_lines(axes, range(len(PARTS)), lines)
    pictures.claim(axes, title)
    style.save(figure, STUDY / "retrieval" / f"{name}.png")


def main() -> None:
    lines = [
        pictures.of(one, name, by_distance(SWEEP, rf"variables-{one}-s\d", how), "+" in name)
        for one, how, name in METHODS
    ]
    window = np.stack(by_distance(SWEEP, r"variables-rope-s\d", "window"))
    lines.append(pictures.Drawn("RoPE, window of L", window, "0.45", ":"))
    draw("answers", "RoPE loses values beyond its training length, and YaRN finds them", lines)
    lines = []
    for key, (name, colour) in ADDITIONS.items():
        place = (ADDED[key][0], f"variables-{ADDED[key][1]}")
        lines.append(pictures.of(colour, name, by_distance(*place, "none")))
        lines.append(pictures.of(colour, f"{name}, YaRN", by_distance(*place, "yarn:8"), True))
    draw("shipped", "Additions to RoPE lose values beyond L, and YaRN finds them", lines)


if __name__ == "__main__":
    main()
