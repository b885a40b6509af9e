"""Every extension at every length of one run."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import posenc_jax
from posenc_jax import extensions
from posenc_jax.configuration import Config, words
from posenc_jax.data import corpus as corpora
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import losses as reading
from posenc_jax.evaluation import picture, records, windows
from posenc_jax.exits import Stop
from posenc_jax.options import known
from posenc_jax.training import parts as making
from posenc_jax.training.checkpoints import Checkpoints
from posenc_jax.training.load import load_parts


class Method(NamedTuple):
    """An extension, at one scale, or at that of the length read."""

    name: str
    scale: float | None

    def applied(self, encoding: Encoding, own: Encoding, ratio: float) -> Encoding:
        """`own` is the run as it is; other extensions start from the encoding without its own."""
        if self.name == "none":
            return own
        if self.name.startswith("dynamic_"):
            return posenc_jax.extend(self.name, encoding, max(1.0, ratio))
        assert self.scale is not None
        return posenc_jax.extend(self.name, encoding, self.scale)


def methods(text: str, encoding: Encoding, largest: float) -> list[Method]:
    """Of `none,pi,yarn:4`, those that fit the encoding; one without a scale gets the largest."""
    fitting = extensions.fitting(encoding)
    chosen = []
    for word in words(text):
        name, _, scale = word.partition(":")
        known("extension", name, extensions.EXTENSIONS)
        if name in fitting:
            fixed = name == "none" or name.startswith("dynamic_")
            chosen.append(Method(name, None if fixed else float(scale or max(1.0, largest))))
    return chosen


def evaluate(config: Config, workdir: Path, step: int | None = None) -> list[dict]:
    step = step or _last_step(workdir)  # once: a run may save another one meanwhile
    run, settings = load_parts(workdir, step)
    # A table that was resampled and then trained has no unextended form to start others from.
    resampled = settings.extension.name in ("interpolate", "clamp")
    plain = run if resampled else making.make(settings, extended=False, start=run.params())
    trained = settings.train_length
    multiples = sorted(float(m) for m in words(config.multiples))
    lengths = [round(m * trained) for m in multiples]
    corpus = corpora.prepare(_data(config, settings), settings.seed)
    split = corpus.valid if not config.data.source else corpus.train
    chosen = windows.choose(
        split, lengths[-1], documents=config.documents, per_document=config.windows
    )
    largest = lengths[-1] / making.original_length(settings)
    cells = [
        (method, length)
        for method in methods("none" if resampled else config.extensions, plain.encoding, largest)
        for length in lengths
    ]
    read = reading.make(run.model, config.tokens_per_call)
    shared = {
        "run": workdir.name,
        "encoding": plain.encoding.name,
        "train_length": trained,
        "token_hash": chosen.token_hash,
        "seed": settings.seed,
        "step": step,
    }
    rows, positions = [], {}
    for method, length in tqdm(cells, desc="cells", unit="cell"):
        encoding = method.applied(
            plain.encoding, run.encoding, length / making.original_length(settings)
        )
        if encoding.reach is not None and length > encoding.reach:
            tqdm.write(f"{method.name} at {length}: beyond the {encoding.reach} positions it has")
            continue
        nats = read(encoding, chosen.tiled(length)).reshape(len(chosen.tokens), -1)
        fields = shared | {"extension": method.name, "scale": method.scale, "length": length}
        size = int(chosen.bytes.sum())
        names = ["nonoverlap"] + (["position"] if length == lengths[-1] else [])
        for protocol in names:
            if protocol in words(config.protocols):
                rows.append(records.row(nats, chosen.document, size, protocol=protocol, **fields))
        if length == lengths[-1]:
            positions[f"{method.name}:{method.scale or ''}"] = nats.mean(axis=0)
    folder = workdir / "eval"
    records.write(folder, rows)
    np.savez(folder / "positions.npz", **positions)
    (workdir / "plots").mkdir(exist_ok=True)
    picture.nonoverlap(rows, workdir / "plots" / "nonoverlap.png")
    return rows


def table(rows: list[dict]) -> str:
    """Lengths as columns, extensions as rows, perplexity in the cells."""
    lengths = sorted({r["length"] for r in rows})
    lines = ["nonoverlap, perplexity".ljust(22) + "".join(f"{length:>10}" for length in lengths)]
    for name, scale in dict.fromkeys((r["extension"], r["scale"]) for r in rows):
        cells = {
            r["length"]: r["ppl"]
            for r in rows
            if (r["extension"], r["scale"]) == (name, scale) and r["protocol"] == "nonoverlap"
        }
        label = name if scale is None else f"{name} x{scale:g}"
        values = (f"{cells[n]:10.3f}" if cells.get(n) else f"{'-':>10}" for n in lengths)
        lines.append(label.ljust(22) + "".join(values))
    return "\n".join(lines)


def _data(config: Config, settings: Config) -> Config:
    if not config.data.source:
        return settings.data
    data = settings.data.copy_and_resolve_references()
    data.source, data.path, data.valid_fraction = config.data.source, config.data.path, 0.0
    return data


def _last_step(workdir: Path) -> int:
    checkpoints = Checkpoints(workdir, read_only=True)
    try:
        saved = checkpoints.steps()
    finally:
        checkpoints.close()
    if not saved:
        raise Stop(f"{workdir} holds no checkpoint yet")
    return saved[-1]
