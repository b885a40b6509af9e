"""Draw field.png, found and order beyond L against training steps, of the encodings of 2026 beside
RoPE and NoPE, topk.png, both against the keys that a query attends to, and fade.png, found against
the distance in short and long rows: python -m study.field.draw"""

from collections.abc import Mapping

import pandas as pd

from posenc_jax import report
from posenc_jax.plots import style
from posenc_jax.report.tables import Named
from study.cells import STUDY
from study.field.tables import KEYS, by_distance, grid, sharpened
from study.order.tables import BUDGETS, FOUND, ORDER, L

LINES = {
    "NoPE": "#777777",
    "RoPE": "#000000",
    "PoPE": "#D55E00",
    "RoPE++": "#56B4E9",
    "retention": "#882255",
    "decay and NoPE": "#0072B2",
    "decay and RoPE": "#CC79A7",
}
EXTENDED = {
    "NoPE": "#777777",
    "RoPE with YaRN": "#000000",
    "PoPE with YaRN": "#D55E00",
    "PoPE with PI": "#E69F00",
    "RoPE with PI": "#009E73",
    "RoPE++ with YaRN": "#56B4E9",
    "retention with YaRN": "#882255",
}
SHARPENED = {
    "NoPE": "#777777",
    "random steps": "#332288",
    "RoPE": "#000000",
    "RoPE with YaRN": "#009E73",
    "PoPE": "#D55E00",
    "RoPE++": "#56B4E9",
    "decay and NoPE": "#0072B2",
    "FIRE": "#882255",
    "forget gates": "#661100",
    "CoPE": "#AA8800",
    "T5 bias": "#CC79A7",
    "ALiBi": "#E69F00",
}
FADING = {
    "RoPE": "#000000",
    "selective RoPE": "#D55E00",
    "random steps": "#0072B2",
    "forget gates": "#661100",
    "ALiBi": "#E69F00",
}


Y = ("found beyond L at 512 tokens; 0: guesses", "order beyond L at 512 tokens; 0.5: guesses")


@style.styled()
def picture(
    name: str,
    rows: pd.DataFrame,
    x: Named,
    words: str,
    low: float,
    *panels: tuple[str, Mapping[str, str]],  # title, and colours of lines by name
) -> None:
    """What is found in the left panel, and its order, from `low` on, in the right one."""
    figure, pair = style.panels(1, 2, (11, 4.2))
    every = zip(pair, panels, (FOUND, ORDER), Y, (0, low), strict=True)
    for axes, (title, colours), asked, y, least in every:
        lines = {line: asked | {"name": line} for line in colours}
        looks = [{"color": colour} for colour in colours.values()]
        options = dict(title=title, y=y, limits=(least, 1.02), looks=looks)
        report.figure(rows, lines, x, **options, seeds=True, axes=axes)
        axes.set_xlabel(words)
    style.save(figure, STUDY / "field" / name)


@style.styled()
def fading() -> None:
    """Means over seeds, and the seeds, by the tokens to the setting; a panel per length of rows."""
    rows = by_distance()
    lengths = sorted(rows.length.unique())
    figure, panels = style.panels(1, len(lengths), (9.6, 4.0), sharey=True)
    for axes, length in zip(panels, lengths, strict=True):
        for name, colour in FADING.items():
            own = rows[(rows.name == name) & (rows.length == length)]
            means = own.groupby("farthest").found.mean()
            axes.plot(means.index, means, "-", color=colour, label=name)
            axes.plot(own.farthest, own.found, ".", color=colour, markersize=3, alpha=0.6)
        axes.axvline(L, color="0.5", linestyle=":")
        axes.set(xscale="log", xlim=(1.8, 5_000), title=f"rows of {length:,} tokens")
        axes.set_xticks([2**n for n in range(2, 13, 2)], [f"{2**n:,}" for n in range(2, 13, 2)])
        axes.minorticks_off()
        axes.set_xlabel("tokens to the setting, at most; dotted: L")
    panels[0].set(ylim=(-0.04, 1.02), ylabel="found; 0: guesses")
    panels[0].legend(loc="lower left")
    style.save(figure, STUDY / "field" / "fade.png")


def main() -> None:
    plain = "As trained: PoPE finds more than RoPE, hybrids little", LINES
    extended = "Extended alike, PoPE and RoPE++ order much as RoPE", EXTENDED
    picture("field.png", grid(), "step", "training steps at L = 64", 0.5, plain, extended)
    rows = sharpened()
    picture(
        "topk.png",
        rows[rows.steps == BUDGETS[-1]],
        {keys: {"keys": keys} for keys in KEYS},
        "keys of the highest logits that a query attends to; 9,600 steps",
        0.35,
        ("Fewer keys bring back little of what was not found", SHARPENED),
        ("They restore the order of NoPE and random steps", SHARPENED),
    )
    fading()


if __name__ == "__main__":
    main()
