"""python scripts/diagnose.py RUN [--extensions=none,yarn] [--multiple=8] [--documents=8] [--step=N]

What position does inside a run, as CSV in RUN/eval/diagnose and pictures in RUN/plots: the rotary
spectrum before and after each extension with the turns of every pair within L, the bias that is
added to the logits against distance, and by position how much attention goes further back than L
and how spread out it is. An extension without a scale takes the multiple.
"""

import argparse
import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np  # noqa: E402

from posenc_jax import backend, errors  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--extensions", default="none,yarn", help="default: none,yarn")
    parser.add_argument("--multiple", type=int, default=8, help="length over L; default: 8")
    parser.add_argument("--documents", type=int, default=8, help="rows read; default: 8")
    parser.add_argument("--step", type=int, help="a checkpoint; default: the last one")
    options = parser.parse_args()
    if options.multiple < 1 or options.documents < 1:
        parser.error("--multiple and --documents must be at least 1")
    backend.configure()
    try:
        for path in diagnose(options):
            print(path)
    except (errors.Stop, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        other = errors.IO if isinstance(error, OSError) else errors.CONFIG
        return getattr(error, "code", other)
    return errors.DONE


def diagnose(options) -> list[Path]:
    from posenc_jax import composition, configuration
    from posenc_jax.evaluation import evaluate, methods
    from posenc_jax.runs.subject import load_subject

    config = configuration.evaluation()
    config.documents, config.windows = max(2, options.documents), 1
    subject = load_subject(options.run, options.step)
    length = options.multiple * subject.trained
    text = evaluate.choose(config, subject, [length])
    rows = text.split.tokens[text.starts[:, None] + range(length)].astype("int32")
    encodings = {}
    longer = length / subject.original  # than the L of the formulas
    for method in methods.methods(options.extensions, subject.plain, longer):
        encoding = method.applied(subject.plain, subject.parts.encoding, longer)
        if encoding.reach is None or encoding.reach >= length:
            name = method.name
            if method.scale is not None:
                name = composition.with_scale(name, method.scale)
            encodings[name] = encoding
    if not encodings:
        raise errors.ConfigError(f"no extension of {options.extensions} reaches {length} tokens")
    tables, plots = options.run / "eval" / "diagnose", options.run / "plots"
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
    sys.exit(main())
