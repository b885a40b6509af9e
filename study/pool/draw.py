"""Draw pool.png, what each run finds beyond L against the number of choices of its model and
against its loss: python -m study.pool.draw"""

import numpy as np

from posenc_jax.plots import style
from study.cells import STUDY
from study.pool.tables import CHOICES, L, beyond, loss

KINDS = {  # window, half of L: label, look, and how far beside its number a point stands
    (False, False): (f"no window, L = {L}", dict(color="#0072B2", marker="o"), -0.15),
    (False, True): (f"no window, L = {L // 2}", dict(color="#0072B2", marker="s"), -0.05),
    (True, False): (f"a window, L = {L}", dict(color="#D55E00", marker="o"), 0.05),
    (True, True): (f"a window, L = {L // 2}", dict(color="#D55E00", marker="s"), 0.15),
}


@style.styled()
def main() -> None:
    """Every run is a point."""
    figure, (left, right) = style.panels(1, 2, (9, 3.4), sharey=True)
    for kind, (words, look, aside) in KINDS.items():
        found, losses = (
            of.xs(kind, axis=1, level=["a window", "half of L"], drop_level=False)
            for of in (beyond(), loss())
        )
        choices = np.tile([sum(made) + aside for made in found], len(found))
        look = look | dict(linestyle="", alpha=0.5, label=words)
        left.plot(choices, found.to_numpy().ravel(), **look)
        right.plot(losses[found.columns].to_numpy().ravel(), found.to_numpy().ravel(), **look)
    left.set_xlabel("choices made")
    left.set_xticks(range(len(CHOICES) + 1))
    left.set_ylabel("found beyond L in rows of 512, with YaRN")
    right.set_xlabel("loss on answers at L, nats")
    right.set_xscale("log")
    right.legend(loc="lower left")
    style.save(figure, STUDY / "pool" / "pool.png")


if __name__ == "__main__":
    main()
