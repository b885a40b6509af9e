"""Draw semantics.png, what stale keys cost: python -m study.decoding.draw"""

from posenc_jax import report
from posenc_jax.plots import style
from study.cells import STUDY
from study.decoding.tables import NAMES, decoded

LENGTHS = {f"{n:,}": {"length": n} for n in range(128, 1_025, 128)}
LINES = {
    "stale keys": ("stale", {"color": "#D55E00", "linestyle": "--"}),
    "current keys": ("prefix", {"color": "#0072B2"}),
    "RoPE alone": ("none", {"color": "0.5", "linestyle": ":"}),
}


@style.styled()
def main() -> None:
    keys = ["method", "semantics", "length", "seed"]
    rows = decoded().groupby(keys)[["nats", "targets"]].sum().reset_index()
    rows = rows.assign(nll=rows.nats / rows.targets)
    figure, panels = style.panels(1, 3, (12.4, 3.2), sharey=True)
    for axes, (method, name) in zip(panels, NAMES.items(), strict=True):
        lines = {
            words: {"method": "none" if one == "none" else method, "semantics": one}
            for words, (one, _) in LINES.items()
        }
        looks = [look for _, look in LINES.values()]
        options = dict(title=f"dynamic {name}", limits=(1.2, 4.3), looks=looks)
        report.figure(rows, lines, LENGTHS, "nll", **options, axes=axes)
        axes.set_xlabel("tokens read, trained at 128")
        axes.set_xticks(range(1, 8, 2), list(LENGTHS)[1::2])
        axes.set_ylabel("nats per token" if axes is panels[0] else "")
    figure.suptitle("Stale keys undo half of dynamic YaRN's gain, and lower dynamic NTK's loss")
    style.save(figure, STUDY / "decoding" / "semantics.png")


if __name__ == "__main__":
    main()
