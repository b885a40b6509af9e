"""Draw fair_same_token.png, loss beyond L: python -m study.text.draw"""

from posenc_jax import report
from posenc_jax.plots import style
from study.cells import STUDY, rows_of, where
from study.text.tables import KEYS, LINES, NEAR, STEPS, SWEEP, L

DRAWN = (
    "FIRE",
    "T5",
    "hybrid with NoPE",
    "Sandwich",
    "RoPE + Self-Extend",
    "Kerple, logarithm",
    "ALiBi",
    "forget gates",
    "ALiBi, 2,400 steps",
)


def main() -> None:
    lines = where(KEYS, {name: LINES[name] for name in DRAWN})
    figure = report.figure(
        rows_of(SWEEP, STEPS),
        lines,
        {f"{n * L:,}": {"length": n * L, "less": NEAR} for n in (1, 2, 4, 8)},
        title="ALiBi gains from context beyond L after 2,400 steps, nothing after 600",
        y="bits per byte less those at L",
        limits=(-0.09, 0.2),
    )
    (axes,) = figure.axes
    axes.set_xlabel("tokens of context")
    axes.axvline(0, color="0.6", linewidth=1, linestyle=":")
    style.annotate(axes, "trained length", (0, 0.985), (3, 0), ha="left", rotation=90)
    style.save(figure, STUDY / "text" / "fair_same_token.png")


if __name__ == "__main__":
    main()
