"""python scripts/diagnose.py RUN[@METHOD[,METHOD...]][@LENGTH] [--documents=8] [--step=N]

What position does inside a run, as CSV in RUN/eval/diagnose and pictures in RUN/plots: the rotary
spectrum before and after each extension with the turns of every pair within L, the bias that is
added to the logits against distance, and by position how much attention goes further back than L
and its entropy. Methods are none,yarn and the length 8 L unless named. An extension without a scale
gets that of the length.

  python scripts/diagnose.py runs/rope@none,ntk,yarn:8@1024
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

from posenc_jax import backend, errors, terminal


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("run", metavar="RUN[@METHOD[,METHOD...]][@LENGTH]")
    parser.add_argument("--documents", type=int, default=8, help="rows read; default: 8")
    parser.add_argument("--step", type=int, help="a checkpoint; default: the last one")
    options = parser.parse_args(argv[1:])
    if options.documents < 1:
        parser.error("--documents must be at least 1")

    def body() -> None:
        backend.configure()
        terminal.say("\n".join(map(str, diagnose(options.run, options.documents, options.step))))

    return terminal.code_of(body)


def diagnose(text: str, documents: int, step: int | None) -> list[Path]:
    from posenc_jax import composition, configuration
    from posenc_jax.evaluation import evaluate, methods, selection
    from posenc_jax.runs.subject import load_subject

    run, names, length = selection.parse(text)
    asked = ",".join(names) or "none,yarn"
    wrong = methods.mistakes(asked)
    if wrong:
        raise errors.ConfigError("; ".join(wrong))
    config = configuration.evaluation()
    config.documents, config.windows = max(2, documents), 1
    subject = load_subject(run, step)
    length = length or 8 * subject.trained
    if length < subject.trained:
        raise errors.ConfigError(
            f"{text}: the length must be at least {subject.trained}, which the run was trained at"
        )
    text = evaluate.choose(config, subject, [length])
    rows = text.split.tokens[text.starts[:, None] + range(length)].astype("int32")
    encodings = {}
    longer = length / subject.original  # than the L of the formulas
    for method in methods.methods(asked, subject.plain, longer):
        encoding = method.applied(subject.plain, subject.parts.encoding, longer)
        if encoding.reach is None or encoding.reach >= length:
            name = method.name
            if method.scale is not None:
                name = composition.with_scale(name, method.scale)
            encodings[name] = encoding
    if not encodings:
        raise errors.ConfigError(f"no method of {asked} reaches {length} tokens")
    tables, plots = run / "eval" / "diagnose", run / "plots"
    for folder in (tables, plots):
        folder.mkdir(parents=True, exist_ok=True)
    return [
        *spectrum(encodings, subject.original, tables, plots),
        *bias(subject.parts.encoding, subject.trained, length, tables, plots),
        *attention(subject, encodings, rows, tables, plots),
    ]


def spectrum(encodings, trained: int, tables: Path, plots: Path) -> list[Path]:
    from posenc_jax import composition
    from posenc_jax.evaluation import diagnostics
    from posenc_jax.evaluation.picture import EXTENSIONS, FOLLOWING, look_of

    ropes = {name: diagnostics.rotary(encoding) for name, encoding in encodings.items()}
    lines = [
        (name, head, pair, float(wave), float(turns))
        for name, rope in ropes.items()
        if rope is not None
        for head, (waves, all_turns) in enumerate(zip(*diagnostics.spectrum(rope), strict=True))
        for pair, (wave, turns) in enumerate(zip(waves, all_turns, strict=True))
    ]
    if not lines:
        return []
    table = write(tables / "spectrum.csv", "extension,table,pair,wavelength,turns_in_L", lines)
    figure, (axes,) = panels(1, 1)
    for name in dict.fromkeys(line[0] for line in lines):
        chosen = [line for line in lines if line[0] == name]
        first = composition.parts(name)[0].name
        colour, mark = look_of(first, EXTENSIONS)
        colour, mark = ("#0072B2", "o") if name == "none" else (colour, mark)
        axes.plot(
            [line[2] for line in chosen],
            [line[3] for line in chosen],
            mark + ("--" if first in FOLLOWING else "-"),
            color=colour,
            label=name,
            markersize=5,
        )
    axes.axhline(trained, color="0.5", linestyle=":")
    axes.annotate(
        "one turn within L: the pairs above were not seen whole",
        (0.99, trained),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color="0.4",
        fontsize=8,
    )
    axes.set(yscale="log", xlabel="rotary pair", ylabel="tokens per turn")

    def inverse(value):
        with np.errstate(divide="ignore"):
            return trained / value

    axes.secondary_yaxis("right", functions=(inverse, inverse)).set_ylabel("turns within L")
    axes.xaxis.get_major_locator().set_params(integer=True)
    finish(figure, axes, "rotary spectrum")
    return [table, save(figure, plots / "spectrum.png")]


def bias(encoding, trained: int, length: int, tables: Path, plots: Path) -> list[Path]:
    from posenc_jax.evaluation import diagnostics

    first = encoding.layer(0)
    curves = {
        n: diagnostics.bias_by_distance(first, n)
        for n in (trained, length)
        if encoding.reach is None or n <= encoding.reach
    }
    if any(curve is None for curve in curves.values()):
        return []
    lines = [
        (n, head, distance, float(value))
        for n, curve in curves.items()
        for head, row in enumerate(curve)
        for distance, value in enumerate(row)
    ]
    table = write(tables / "bias.csv", "length,head,distance,bias", lines)
    figure, (axes,) = panels(1, 1)
    for n, curve in curves.items():
        for head, row in enumerate(curve):
            axes.plot(
                range(1, n + 1),
                row,
                color=f"C{head}",
                linestyle="-" if n == length else "--",
                label=f"head {head}" if n == length else None,
            )
    axes.axvline(trained, color="0.5", linestyle=":")
    axes.set(xscale="log", xlabel="distance + 1 (tokens)", ylabel="added to the logit")
    values = np.array([line[3] for line in lines])
    if np.ptp(values) > 20:
        axes.set_yscale("symlog", linthresh=1)
    powers_of_two(axes, length)
    dashed = f"; dashed: in a window of {trained}, where it differs" if len(curves) > 1 else ""
    finish(figure, axes, f"bias by distance for the last of {length} queries{dashed}")
    return [table, save(figure, plots / "bias.png")]


def attention(subject, encodings, rows, tables: Path, plots: Path) -> list[Path]:
    from posenc_jax.evaluation import diagnostics, picture

    trained = subject.trained
    lines = []
    figure, axes = panels(2, len(encodings))
    places = range(1, rows.shape[1] + 1)
    for column, (name, encoding) in enumerate(encodings.items()):
        found = diagnostics.attention(subject.parts.model, encoding, rows, trained)
        for layer, (beyond, entropy) in enumerate(zip(found.beyond, found.entropy, strict=True)):
            for head in range(len(beyond)):
                for place in places:
                    values = float(beyond[head, place - 1]), float(entropy[head, place - 1])
                    lines.append((name, layer, head, place, *values))
            top, bottom = axes[column], axes[len(encodings) + column]
            shade = dict(color=f"C{layer}", label=f"layer {layer}", linewidth=1)
            top.plot(*picture.smooth(beyond.mean(axis=0)), **shade)
            bottom.plot(*picture.smooth(entropy.mean(axis=0)), **shade)
        axes[len(encodings) + column].plot(
            places,
            diagnostics.uniform_entropy(len(places)),
            color="0.3",
            linestyle=":",
            label="all keys alike",
        )
        axes[column].set(title=name, ylim=(-0.02, 1.02))
        for panel in (axes[column], axes[len(encodings) + column]):
            powers_of_two(panel, len(places))
            panel.axvline(trained, color="0.5", linestyle=":")
            panel.grid(True, color="0.92")
    axes[0].set_ylabel("attention further back than L")
    axes[len(encodings)].set_ylabel("entropy of attention (nats)")
    for panel in axes[len(encodings) :]:
        panel.set_xlabel("position of the query")
    lines_drawn, names = axes[-1].get_legend_handles_labels()
    figure.legend(lines_drawn, names, loc="outside right center", fontsize=8, frameon=False)
    table = write(tables / "attention.csv", "extension,layer,head,position,beyond_L,entropy", lines)
    return [table, save(figure, plots / "attention.png")]


def powers_of_two(axes, longest: int) -> None:
    from matplotlib.ticker import NullLocator

    ticks = [2**i for i in range(0, longest.bit_length(), 2)]
    axes.set_xscale("log")
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.xaxis.set_minor_locator(NullLocator())


def panels(rows: int, columns: int):
    from matplotlib.figure import Figure

    size = (8, 4.5) if rows == columns == 1 else (1.5 + 3.6 * columns, 3.2 * rows)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey="row").reshape(-1)


def finish(figure, axes, title: str) -> None:
    axes.grid(True, color="0.92")
    figure.suptitle(title, fontsize=10)
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside right center", fontsize=8, frameon=False)


def save(figure, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path


def write(path: Path, header: str, lines) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(lines)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv))
