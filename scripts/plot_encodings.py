"""python scripts/plot_encodings.py [RUN ...] [--out=report/encodings] [--length=128] [--scale=8]

Pictures of the encodings: how far RoPE's scores reach, its wavelengths before and after each
extension, the biases of ALiBi, T5, Kerple, FIRE and Sandwich by head, and the similarity of the
vectors of additive encodings, the distances that extensions move, the windows and chunks of layers
that differ, and forget gates over a text. They are drawn untrained, and titles say which values are
random; a RUN replaces its scheme with what it learned, and its gates read held-out text. For a RUN
with an additive encoding also the shares of content and position in the scores and keys of its
first layer.
"""

import argparse
import sys
from pathlib import Path

from posenc_jax import backend, errors, terminal

BIASES = ("alibi", "t5", "kerple_log", "kerple_power", "fire", "sandwich")
ADDITIVE = ("sinusoidal", "learned")
LAYERED = "hybrid"
GATED = "fox"
TOKENS = 80  # over which gates are drawn
LAYERS = 8  # of untrained encodings whose layers differ
MOST = 512  # tokens along a map of distances: of more the first few would not be seen
TEXT = b"The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox is gone"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("report/encodings"))
    parser.add_argument("--length", type=int, default=128, help="L; default: 128")
    parser.add_argument("--scale", type=float, default=8.0, help="of extensions; default: 8")
    parser.add_argument("--heads", type=int, default=8, help="of untrained encodings; default: 8")
    options = parser.parse_args(argv[1:])
    if options.length < 2 or options.scale < 1 or options.heads < 1:
        parser.error("--length must be at least 2, --scale and --heads at least 1")
    return terminal.code_of(lambda: plot(options))


def plot(options) -> None:
    backend.configure()
    import jax
    import numpy as np

    import posenc_jax
    from posenc_jax.encoding import overrides
    from posenc_jax.evaluation import diagnostics
    from posenc_jax.plots import encodings as pictures
    from posenc_jax.plots import style
    from posenc_jax.runs.subject import load_subject

    dims = posenc_jax.Dims(options.heads, 64, 64 * options.heads, options.length)
    runs = {}
    for run in options.runs:
        subject = load_subject(run)
        name = subject.plain.name
        if name in runs:
            raise errors.ConfigError(f"{run}: a second run with {name!r}; name one")
        if name not in ("rope", *BIASES, *ADDITIVE, LAYERED, GATED):
            terminal.warn(f"{run}: there is no picture of {name!r}")
        if name == "rope" and np.ndim(subject.plain.inv_freq) > 1:
            raise errors.ConfigError(
                f"{run}: its heads or layers have different frequencies; one can be drawn"
            )
        runs[name] = run, subject

    def of(name):  # without the run's own extension, which the pictures show beside others
        if name in runs:
            return runs[name][1].plain
        return posenc_jax.build(name, dims, key=jax.random.key(0))

    def titled(*names):
        run = {name: path.resolve().name for name, (path, _) in runs.items()}
        return {pictures.title(of(name), run.get(name)): of(name) for name in names}

    layers, layered = LAYERS, titled(LAYERED)
    if LAYERED in runs:
        layers = runs[LAYERED][1].config.model.layers
    else:
        layered["hybrid:chunked"] = posenc_jax.build(LAYERED, dims, chunked=True)

    rope, out, far = of("rope"), options.out, int(options.scale * options.length)
    longest = min(max(far, 8), MOST)
    made = [
        style.save(figure, out / f"{name}.png")
        for name, figure in (
            ("rope_reach", pictures.reach(rope)),
            ("rope_distances", pictures.distances(rope)),
            ("rope_wavelengths", pictures.wavelengths(rope, options.scale)),
            ("biases", pictures.biases(titled(*BIASES), far)),
            ("similarity", pictures.similarities(titled(*ADDITIVE), options.length)),
            ("remapped", pictures.remapped(longest, max(8, round(longest / options.scale)))),
            ("windows", pictures.windows(layered, layers, 2 * options.length)),
        )
    ]
    if overrides(of(GATED), "read"):
        (title,) = titled(GATED)
        found = gates_of(runs[GATED][1]) if GATED in runs else untrained_gates(dims)
        made.append(style.save(pictures.gates(*found, title), out / "gates.png"))
    else:
        terminal.warn(f"{runs[GATED][0]}: its gates read no text; there is no picture of them")
    for name in ADDITIVE:
        if name in runs:
            run, subject = runs[name]
            parts = subject.parts
            found = diagnostics.terms(parts.model, parts.encoding, held_out(subject))
            made.append(style.save(pictures.terms(found, str(run)), out / f"terms_{name}.png"))
            terminal.say(f"{run}, first layer, by head")
            for key, values in found.items():
                terminal.say(f"  {key:<22}" + "".join(f"{value:9.3f}" for value in values))
    terminal.say("\n".join(map(str, made)))


def gates_of(subject):
    """The gates of a run over held-out text, and its tokens."""
    from posenc_jax.data import prepared
    from posenc_jax.evaluation import diagnostics

    row = held_out(subject)[0, :TOKENS]
    decode = prepared.encoder_of(subject.config.data).decode
    letters = [repr(decode([token]))[1:-1] for token in row]
    return diagnostics.gates(subject.parts.model, subject.parts.encoding, row), letters


def untrained_gates(dims):
    """The gates of a model of two layers as it is drawn, over bytes of TEXT, and these."""
    import dataclasses

    import jax
    import numpy as np

    import posenc_jax
    from posenc_jax import neighbours
    from posenc_jax.evaluation import diagnostics

    models, key = neighbours.models(), jax.random.key(0)
    config = models.Config(layers=2, width=dims.width, heads=dims.heads)
    encoding = posenc_jax.build(GATED, dataclasses.replace(dims, layers=2), key=key)
    row = np.frombuffer(TEXT[:TOKENS], np.uint8).astype("int32")
    kept = diagnostics.gates(models.Transformer(config, key), encoding, row)
    return kept, [chr(token) for token in row]


def held_out(subject):
    """Sixteen rows of L tokens from held-out documents."""
    from posenc_jax import configuration
    from posenc_jax.evaluation import evaluate

    settings = configuration.evaluation()
    settings.documents, settings.windows = 16, 1
    length = subject.config.train_length
    text = evaluate.choose(settings, subject, [length])
    return text.split.tokens[text.starts[:, None] + range(length)].astype("int32")


if __name__ == "__main__":
    sys.exit(terminal.program(main))
