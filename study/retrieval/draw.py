"""Draw answers.png and shipped.png, accuracy by distance: python -m study.retrieval.draw"""

from collections.abc import Mapping, Sequence

from posenc_jax import report
from posenc_jax.plots import style
from study.cells import STUDY, rows_of, where
from study.retrieval.tables import FAR, SHIPPED, SWEEP, added, back, of_design

PARTS = ("1-16", "17-32", "33-64", "65-128", "129-256", "257-512")
METHODS = {
    "randomised positions": ("randomized", "none"),
    "RoPE + YaRN": ("rope", "yarn:8"),
    "NoPE": ("nope", "none"),
    "FIRE": ("fire", "none"),
    "ALiBi": ("alibi", "none"),
    "RoPE": ("rope", "none"),
    "forget gates": ("fox", "none"),
    "RoPE, window of L": ("rope", "window"),
}
ADDITIONS = {  # to RoPE
    "p-RoPE": ("rotation of 3/4 of the pairs (p-RoPE)", "#332288"),
    "trained frequencies": ("trained frequencies", "#CC79A7"),
    "trained sink": ("a trained sink", "#D55E00"),
    "SSMax": ("a trained scale of scores (SSMax)", "#009E73"),
}


def draw(name: str, title: str, lines: Mapping, looks: Sequence[style.Look] = ()) -> None:
    places = {part: back(part) for part in PARTS}
    options = dict(title=title, limits=(0, 1.03), looks=looks)
    figure = report.figure(rows_of(SWEEP, SHIPPED), lines, places, "accuracy", **options)
    (axes,) = figure.axes
    axes.set_xlabel(f"tokens back to the answer, of {FAR}")
    axes.axvline(2.5, color="0.6", linewidth=1, linestyle=":")
    axes.axhline(1 / 6, color="0.6", linewidth=1)
    style.annotate(axes, "guess", (0, 1 / 6 - 0.01), (0, 0), ha="left", xycoords="data")
    style.annotate(axes, "L", (2.5, 0.03), (4, 0), ha="left", va="bottom")
    style.save(figure, STUDY / "retrieval" / f"{name}.png")


def main() -> None:
    one_rate = of_design("one rate")
    lines = {name: line | one_rate for name, line in where("encoding method", METHODS).items()}
    draw("answers", "RoPE loses values beyond its training length, and YaRN finds them", lines)
    lines, looks = {}, []
    for name, (key, colour) in ADDITIONS.items():
        lines[name] = added(key) | {"method": "none"}
        lines[f"{name}, YaRN"] = added(key) | {"method": "yarn:8"}
        looks += [{"color": colour}, {"color": colour, "linestyle": "--"}]
    draw("shipped", "Additions to RoPE lose values beyond L, and YaRN finds them", lines, looks)


if __name__ == "__main__":
    main()
