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
    from posenc_jax.evaluation import diagnostics
    from posenc_jax.plots import encodings as pictures
    from posenc_jax.plots import style

    rotary = {name: diagnostics.rotary(encoding) for name, encoding in encodings.items()}
    ropes = {name: rope for name, rope in rotary.items() if rope is not None}
    if not ropes:
        return []
    lines = [
        (name, head, pair, float(wave), float(turns))
        for name, rope in ropes.items()
        for head, (waves, all_turns) in enumerate(zip(*diagnostics.spectrum(rope), strict=True))
        for pair, (wave, turns) in enumerate(zip(waves, all_turns, strict=True))
    ]
    table = write(tables / "spectrum.csv", "extension,table,pair,wavelength,turns_in_L", lines)
    return [table, style.save(pictures.spectrum(ropes, trained), plots / "spectrum.png")]


def bias(encoding, trained: int, length: int, tables: Path, plots: Path) -> list[Path]:
    from posenc_jax.evaluation import diagnostics
    from posenc_jax.plots import attention as pictures
    from posenc_jax.plots import style

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
    return [table, style.save(pictures.bias(curves, trained), plots / "bias.png")]


def attention(subject, encodings, rows, tables: Path, plots: Path) -> list[Path]:
    from posenc_jax.evaluation import diagnostics
    from posenc_jax.plots import attention as pictures
    from posenc_jax.plots import style

    found = {
        name: diagnostics.attention(subject.parts.model, encoding, rows, subject.trained)
        for name, encoding in encodings.items()
    }
    lines = [
        (name, layer, head, place + 1, float(beyond), float(one.entropy[layer, head, place]))
        for name, one in found.items()
        for (layer, head, place), beyond in np.ndenumerate(one.beyond)
    ]
    table = write(tables / "attention.csv", "extension,layer,head,position,beyond_L,entropy", lines)
    picture = pictures.attention(found, subject.trained)
    return [table, style.save(picture, plots / "attention.png")]


def write(path: Path, header: str, lines) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(lines)
    return path


if __name__ == "__main__":
    sys.exit(terminal.program(main))
