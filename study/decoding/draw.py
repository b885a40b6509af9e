"""Draw semantics.png, what stale keys cost: python -m study.decoding.draw"""

import numpy as np

from posenc_jax.plots import style
from study import pictures
from study.cells import STUDY
from study.decoding.tables import NAMES, decoded

LENGTHS = tuple(128 * n for n in (1, 2, 3, 4, 5, 6, 7, 8))
LINES = {  # name, colour and dashes
    "stale": ("stale keys", "#D55E00", "--"),
    "prefix": ("current keys", "#0072B2", "-"),
    "none": ("RoPE alone", "0.5", ":"),
}


def nats(method: str, semantics: str) -> np.ndarray:  # [lengths, runs]
    """Nats per token of every run."""
    rows = decoded().loc[method, semantics].groupby(["length", "run"]).sum()
    return (rows.nats / rows.targets).unstack().loc[list(LENGTHS)].to_numpy()


@style.styled()
def main() -> None:
    figure, panels = style.panels(1, 3, (9.6, 3.2), sharey=True)
    for axes, (method, name) in zip(panels, NAMES.items(), strict=True):
        lines = [
            pictures.Drawn(words, nats("none" if one == "none" else method, one), *look)
            for one, (words, *look) in LINES.items()
        ]
        axes.set(ylim=(1.2, 4.3), xlabel="tokens read, trained at 128")
        axes.set_xticks(LENGTHS[1::2], [f"{n:,}" for n in LENGTHS[1::2]])
        pictures.named_lines(axes, LENGTHS, lines)
        pictures.claim(axes, f"dynamic {name}")
    panels[0].set_ylabel("nats per token")
    figure.suptitle("Stale keys undo half of dynamic YaRN's gain, and lower dynamic NTK's loss")
    style.save(figure, STUDY / "decoding" / "semantics.png")


if __name__ == "__main__":
    main()
