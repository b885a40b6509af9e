"""Draw fair_same_token.png, loss beyond L: python -m study.text.draw"""

from posenc_jax.plots import style
from study import pictures
from study.cells import STUDY
from study.text.tables import STEPS, SWEEP, L, bits

LENGTHS = (L, 2 * L, 4 * L, 8 * L)
METHODS = [  # sweep, encoding, method, name
    (SWEEP, "fire", "none", "FIRE: +0.49"),
    (SWEEP, "t5", "none", "T5"),
    (SWEEP, "hybrid_nope", "none", "hybrid with NoPE"),
    (SWEEP, "sandwich", "none", "Sandwich"),
    (SWEEP, "rope", "self_extend", "RoPE + Self-Extend"),
    (SWEEP, "kerple_log", "none", "Kerple, logarithm"),
    (SWEEP, "alibi", "none", "ALiBi"),
    (SWEEP, "fox", "none", "forget gates"),
    (STEPS, "alibi", "none", "ALiBi, 2,400 steps"),
]


@style.styled()
def main() -> None:
    figure, (axes,) = style.panels(1, 1, pictures.SIZE)
    lines = []
    for sweep, encoding, method, name in METHODS:
        place = dict(sweep=sweep, run=f"{encoding}-.*", protocol="same_token")
        near = bits(**place, method="none", length=L)
        values = [bits(**place, method=method, length=n) - near for n in LENGTHS]
        if method == "self_extend":
            values[0] = 0 * near  # it changes nothing within L
        look = encoding.removesuffix("_nope")
        lines.append(pictures.of(look, name, values, "+ " in name or sweep == STEPS))
    axes.set_ylim(-0.09, 0.2)
    style.length_axis(axes, LENGTHS, [L])
    axes.set_xlabel("tokens of context")
    axes.set_ylabel("bits per byte less those at L")
    pictures.named_lines(axes, LENGTHS, lines)
    pictures.claim(axes, "ALiBi gains from context beyond L after 2,400 steps, nothing after 600")
    style.save(figure, STUDY / "text" / "fair_same_token.png")


if __name__ == "__main__":
    main()
