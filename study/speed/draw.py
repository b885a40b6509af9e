"""Draw speed.png, training against length: python -m study.speed.draw"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from posenc_jax import report
from posenc_jax.plots import style
from study.cells import STUDY

BLUE, GREEN, PURPLE = (style.look_of(name)[0] for name in ("rope", "t5", "fire"))
LINES = {  # of lengths.csv, with colour and dashes
    "RoPE": ("rope", BLUE, "-"),
    "T5": ("t5", GREEN, "-"),
    "FIRE": ("fire", PURPLE, "-"),
    "x-transformers, compiled": ("x-transformers, compiled", "0.3", "-"),
    "x-transformers, eager": ("x-transformers", "0.5", "--"),
    "RoPE, plain attention": ("rope, plain attention", BLUE, "--"),
    "flax.nnx decoder": ("flax.nnx textbook", "0.5", "--"),
}
TITLES = {"tokens_per_s": "training, tokens per second", "temporary_mib": "memory of a step, MiB"}


@style.styled()
def main() -> None:
    # The interval is the middle half of the rounds.
    ends = {"low": "tokens_per_s_low", "high": "tokens_per_s_high"}
    rows = pd.read_csv(STUDY / "speed" / "lengths.csv").rename(columns=ends).assign(seed=0)
    lines = {name: {"who": who} for name, (who, *_) in LINES.items()}
    looks = [{"color": colour, "linestyle": dashes} for _, colour, dashes in LINES.values()]
    figure, panels = style.panels(1, 2, (11, 3.8))
    for axes, (field, title) in zip(panels, TITLES.items(), strict=True):
        _log_values(axes)
        report.figure(rows, lines, value=field, title=title, looks=looks, axes=axes)
        axes.set(xlabel="length of a row, 4,096 tokens a step", ylabel="")
    figure.suptitle("On a Zen 5 RoPE trains faster than x-transformers, in memory that is flat")
    style.save(figure, STUDY / "speed" / "speed.png")


def _log_values(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with ticks at 1, 2 and 5 of every decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:.7g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    main()
