"""Draw content.png, right answers by distance: python -m study.content.draw"""

from pathlib import Path

from posenc_jax.plots import answers, style
from study.content.tables import TUNED
from study.order.tables import FAR, L, ordered

PICTURE = Path(__file__).parent / "content.png"


def main() -> None:
    rows = ordered(TUNED)
    rows = rows[(rows.protocol == "gap") & (rows.length == FAR) & (rows.train_length == L)]
    parts = list(dict.fromkeys(rows.part))
    windows = rows[rows.method == "window"].groupby("part").accuracy.mean()
    rows = rows[rows.method == "none"]
    lines = rows.groupby(["group", "part"]).accuracy.mean().unstack()
    lines = lines.loc[lines.mean(axis=1).sort_values(ascending=False).index]
    lines.loc["windows of L (mean)"] = windows
    lines.loc["a reader without order"] = rows.groupby("part").orderless.mean()
    style.save(answers.by_gap(lines[parts].to_numpy(), list(lines.index), parts, L), PICTURE)


if __name__ == "__main__":
    main()
