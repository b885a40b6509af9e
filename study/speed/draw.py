"""Draw speed.png, training against length: python -m study.speed.draw"""

import pandas as pd

from posenc_jax.plots import style
from study import pictures
from study.cells import STUDY

LINES = {  # of lengths.csv: name, and the encoding in whose colour it is drawn
    "rope": ("RoPE", "rope"),
    "t5": ("T5", "t5"),
    "fire": ("FIRE", "fire"),
    "x-transformers, compiled": ("x-transformers, compiled", "0.3"),
    "x-transformers": ("x-transformers, eager", "0.5"),
    "rope, plain attention": ("RoPE, plain attention", "rope"),
    "flax.nnx textbook": ("flax.nnx decoder", "0.5"),
}
DASHED = ("x-transformers", "rope, plain attention", "flax.nnx textbook")
TITLES = {"tokens_per_s": "training, tokens per second", "temporary_mib": "memory of a step, MiB"}


@style.styled()
def main() -> None:
    rows = pd.read_csv(STUDY / "speed" / "lengths.csv").set_index(["who", "length"]).sort_index()
    figure, panels = style.panels(1, 2, (9.6, 3.8))
    for axes, (field, title) in zip(panels, TITLES.items(), strict=True):
        lines = []
        for who, (name, look) in LINES.items():
            values = rows.loc[who][field].dropna()
            if len(values):
                colour = look if look[0] == "0" else style.look_of(look)[0]
                dashes = "--" if who in DASHED else "-"
                lines.append(pictures.Drawn(name, values.to_numpy()[:, None], colour, dashes))
                if field == "tokens_per_s":  # the middle half of the rounds
                    own = rows.loc[who]
                    axes.fill_between(own.index, own.low, own.high, color=colour, alpha=0.2)
        lengths = list(rows.loc["rope"].index)
        style.length_axis(axes, lengths)
        style.log_values(axes)
        axes.set_xlabel("length of a row, 4,096 tokens a step")
        pictures.named_lines(axes, lengths, lines)
        pictures.claim(axes, title)
    figure.suptitle("On a Zen 5 RoPE trains faster than x-transformers, in memory that is flat")
    style.save(figure, STUDY / "speed" / "speed.png")


if __name__ == "__main__":
    main()
