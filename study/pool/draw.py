"""Draw pool.png, what each run finds beyond L against the number of choices of its model and
against its loss: python -m study.pool.draw"""

import numpy as np

from posenc_jax.plots import style
from study.cells import STUDY
from study.pool.tables import CHOICES, measured

COLOURS = {False: ("no window", "#0072B2", -0.1), True: ("a window", "#D55E00", 0.1)}
MARKS = {False: ("L = 64", "o"), True: ("L = 32", "s")}


@style.styled()
def main() -> None:
    """Every run is a point."""
    found, loss = measured("found"), measured("loss at L")
    figure, pair = style.panels(1, 2, (9, 3.4), sharey=True)
    for window, (colour_words, colour, aside) in COLOURS.items():
        for short, (mark_words, mark) in MARKS.items():
            place = {"a window": window, "half of L": short}
            own = [
                made
                for made in found
                if place.items() <= dict(zip(CHOICES, made, strict=True)).items()
            ]
            look = dict(color=colour, alpha=0.5, label=f"{colour_words}, {mark_words}")
            values = found[own].to_numpy().ravel()
            choices = np.tile([sum(made) + aside for made in own], len(found))
            pair[0].plot(choices, values, mark, **look)
            pair[1].plot(loss[own].to_numpy().ravel(), values, mark, **look)
    pair[0].set_xlabel("choices made")
    pair[0].set_xticks(range(len(CHOICES) + 1))
    pair[0].set_ylabel("found beyond L in rows of 512, with YaRN")
    pair[1].set_xlabel("loss on answers at L, nats")
    pair[1].set_xscale("log")
    pair[1].legend(loc="lower left")
    style.save(figure, STUDY / "pool" / "pool.png")


if __name__ == "__main__":
    main()
