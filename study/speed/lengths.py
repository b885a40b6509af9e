"""python -m study.speed.lengths [--lengths=128,256,512,1024,2048,4096] [--seconds=20] [--out=DIR]

Measures training at every length with 4,096 tokens a step: tokens per second of every encoding and
of the peers, and the temporary memory of the step. Writes lengths.csv and draws speed.png.
"""

import argparse
import csv
from pathlib import Path

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import matplotlib  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks import peers  # noqa: E402
from benchmarks.timing import in_turns, machine  # noqa: E402
from benchmarks.train_step import ours, textbook, theirs  # noqa: E402
from posenc_jax import schemes  # noqa: E402
from posenc_jax.plots.style import look_of  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

TOKENS = 4096  # per step
PLAIN = "rope, plain attention"
EAGER, COMPILED, FLAX = "x-transformers", "x-transformers, compiled", "flax.nnx textbook"
PEERS = {  # drawn over our lines, in grey
    PLAIN: ("0.25", (0, (1, 1))),
    EAGER: ("0.45", "--"),
    COMPILED: ("0.45", "-."),
    FLAX: ("0.6", (0, (5, 1, 1, 1))),
}


def measure(length: int, seconds: float) -> list[dict]:
    rows = max(1, TOKENS // length)
    calls, memory = {}, {}
    for name in schemes.names():
        calls[name], _, memory[name] = ours(name, length, rows)
    calls[PLAIN], _, memory[PLAIN] = ours("rope", length, rows, "plain")
    calls[EAGER] = theirs("rope", length, rows, "eager")
    calls[COMPILED] = theirs("rope", length, rows, "compiled")
    calls[FLAX] = textbook(length, rows)
    times = in_turns(calls, seconds, least=5)
    lines = []
    for name, taken in times.items():
        low, middle, high = np.percentile(rows * length / taken, [25, 50, 75])
        temporary = f"{memory[name] / 2**20:.1f}" if name in memory else ""
        print(f"{length:5} {name:26} {middle:9,.0f} tokens/s  {temporary:>8} MiB", flush=True)
        lines.append(
            {
                "length": length,
                "who": name,
                "tokens_per_s": round(middle),
                "low": round(low),
                "high": round(high),
                "temporary_mib": temporary,
            }
        )
    return lines


def draw(rows: list[dict], path: Path) -> None:
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    lengths = sorted({row["length"] for row in rows})
    for name in dict.fromkeys(row["who"] for row in rows):
        lines = [row for row in rows if row["who"] == name]
        if name in PEERS:
            color, dashes = PEERS[name]
            style = {"color": color, "linestyle": dashes, "linewidth": 2, "zorder": 1}
        else:
            color, marker = look_of(name)
            style = {"color": color, "marker": marker, "markersize": 5, "linewidth": 1.2}
        for panel, field in zip(panels, ("tokens_per_s", "temporary_mib"), strict=True):
            points = [(row["length"], float(row[field])) for row in lines if row[field] != ""]
            if points:
                panel.plot(*zip(*points, strict=True), label=name, **style)
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(lengths, [f"{n:,}" for n in lengths])
        panel.set_xlabel(f"length of a row; {TOKENS:,} tokens a step")
        panel.grid(alpha=0.3, which="both")
        panel.spines[["top", "right"]].set_visible(False)
        low, high = panel.get_ylim()
        ticks = [m * 10**e for e in range(6) for m in (1, 2, 5) if low <= m * 10**e <= high]
        panel.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        panel.yaxis.set_minor_formatter("")
    panels[0].set_title("training, tokens per second", loc="left")
    panels[1].set_title("temporary memory of a step, MiB", loc="left")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lengths", default="128,256,512,1024,2048,4096")
    parser.add_argument("--seconds", type=float, default=20, help="per length")
    parser.add_argument("--out", type=Path, default=Path("study/speed"))
    options = parser.parse_args()
    peers.install(peers.ROOT / ".venv-bench", peers.ROOT / "benchmarks" / "requirements.txt")
    print(machine(), flush=True)
    rows = []
    for length in map(int, options.lengths.split(",")):
        rows += measure(length, options.seconds)
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "lengths.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        draw(rows, options.out / "speed.png")


if __name__ == "__main__":
    main()
