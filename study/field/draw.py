"""Draw field.png, found and order beyond L against training steps, of the encodings of 2026 beside
RoPE and NoPE: python -m study.field.draw"""

from pathlib import Path

from matplotlib.figure import Figure

from posenc_jax.plots import style
from study.field.tables import grid
from study.order.draw import by_steps
from study.order.tables import measured, orders

PICTURE = Path(__file__).parent / "field.png"
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


@style.styled()
def main() -> None:
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    by_steps(left, measured(grid(), "found"), "found", LINES)
    left.set(ylim=(0, 1.02), ylabel="found beyond L at 512 tokens; 0: guesses")
    left.set_title("As trained: PoPE finds more than RoPE, hybrids little")
    by_steps(right, orders(grid()), "order", EXTENDED)
    right.set(ylim=(0.5, 1.02), ylabel="order beyond L at 512 tokens; 0.5: guesses")
    right.set_title("Extended alike, PoPE and RoPE++ order as RoPE")
    style.save(figure, PICTURE)


if __name__ == "__main__":
    main()
