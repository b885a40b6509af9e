"""Pictures of every encoding, as initialised or as learned by a run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

import models
from posenc_jax import schemes, terminal
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.errors import ConfigError
from posenc_jax.evaluation import diagnostics
from posenc_jax.layers import overrides
from posenc_jax.plots import encodings as pictures
from posenc_jax.plots import style
from posenc_jax.report.diagnosis import rows_of
from posenc_jax.runs.subject import Subject, load_subject
from posenc_jax.schemes.rope import RoPE

ROTARY = "rope"
BIASES = ("alibi", "t5", "kerple_log", "kerple_power", "fire", "sandwich")
ADDITIVE = ("sinusoidal", "learned")
LAYERED = "hybrid"
GATED = "fox"
TOKENS = 80  # for which gates are drawn
LAYERS = 8  # of untrained layered encodings
ROWS = 16  # of held-out text
MOST = 512  # tokens along a map of distances; with more the first few would be invisible
TEXT = b"The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox is gone"


class Portraits:
    """Encodings at `dims`, taken from a run where one is given, without its extension."""

    def __init__(self, dims: Dims, folders: Sequence[Path]):
        self.dims = dims
        self.runs: dict[str, tuple[Path, Subject]] = {}
        for folder in folders:
            subject = load_subject(folder)
            self._check(folder, subject.plain)
            self.runs[subject.plain.name] = folder, subject

    def draw(self, out: Path, scale: float) -> list[Path]:
        """Draw all pictures; return the files written."""
        trained = self.dims.train_length
        rope, far = self.of(ROTARY), int(scale * trained)
        assert isinstance(rope, RoPE)
        longest = min(max(far, 8), MOST)
        figures = {
            "rope_reach": pictures.reach(rope),
            "rope_distances": pictures.distances(rope),
            "rope_wavelengths": pictures.wavelengths(rope, scale),
            "biases": pictures.biases(self.titled(*BIASES), far),
            "similarity": pictures.similarities(self.titled(*ADDITIVE), trained),
            "remapped": pictures.remapped(longest, max(8, round(longest / scale))),
            "windows": pictures.windows(self.layered(), self.layers, 2 * trained),
        }
        if overrides(self.of(GATED), "read"):
            (title,) = self.titled(GATED)
            figures["gates"] = pictures.gates(*self.gates(), title)
        else:
            folder, _ = self.runs[GATED]
            terminal.warn(f"{folder}: gates without content have no picture")
        for name in (name for name in ADDITIVE if name in self.runs):
            figures[f"terms_{name}"] = pictures.terms(self.terms(name), str(self.runs[name][0]))
        return [style.save(figure, out / f"{name}.png") for name, figure in figures.items()]

    def of(self, name: str) -> Encoding:
        """An encoding; of a run that has one per layer, that of the first layer."""
        if name not in self.runs:
            return schemes.build(name, self.dims, key=jax.random.key(0))
        plain = self.runs[name][1].plain
        if name == LAYERED:
            return plain
        first = plain.layer(0)
        return diagnostics.rotary(first) or first

    def titled(self, *names: str) -> dict[str, Encoding]:
        """Encodings by title; a title names the run that trained them."""
        run = {
            name: folder.resolve().name + ", layer 0" * (subject.plain.depth is not None)
            for name, (folder, subject) in self.runs.items()
        }
        return {pictures.title(self.of(name), run.get(name)): self.of(name) for name in names}

    @property
    def layers(self) -> int:
        return self.runs[LAYERED][1].parts.model.config.layers if LAYERED in self.runs else LAYERS

    def layered(self) -> dict[str, Encoding]:
        encodings = self.titled(LAYERED)
        if LAYERED not in self.runs:
            encodings["hybrid:chunked"] = schemes.build(LAYERED, self.dims, chunked=True)
        return encodings

    def gates(self) -> tuple[np.ndarray, list[str]]:
        """Forget gates over a text, and its tokens as text."""
        if GATED not in self.runs:
            return _untrained_gates(self.dims)
        _, subject = self.runs[GATED]
        row = self._rows(subject)[0, :TOKENS]
        decode = subject.tokenizer.decode
        letters = [repr(decode([token]))[1:-1] for token in row]
        return diagnostics.gates(subject.parts.model, subject.parts.encoding, row), letters

    def terms(self, name: str) -> dict[str, np.ndarray]:
        """Print and return the shares of content and position in the first layer of a run."""
        folder, subject = self.runs[name]
        parts = subject.parts
        shares = diagnostics.terms(parts.model, parts.encoding, self._rows(subject))
        terminal.say(f"{folder}, first layer, by head")
        for key, values in shares.items():
            terminal.say(f"  {key:<22}" + "".join(f"{value:9.3f}" for value in values))
        return shares

    def _check(self, folder: Path, encoding: Encoding) -> None:
        name = encoding.name
        if name in self.runs:
            raise ConfigError(f"{folder}: a second run with {name!r}; give one run per encoding")
        if name not in (ROTARY, *BIASES, *ADDITIVE, LAYERED, GATED):
            terminal.warn(f"{folder}: {name!r} has no picture")
        rope = diagnostics.rotary(encoding)
        if name == ROTARY and rope is not None and np.ndim(rope.inv_freq) > 1:
            raise ConfigError(
                f"{folder}: its frequencies differ by head or layer; only shared ones can be drawn"
            )

    def _rows(self, subject: Subject) -> np.ndarray:
        return rows_of(subject, ROWS, subject.trained)


def _untrained_gates(dims: Dims) -> tuple[np.ndarray, list[str]]:
    """Gates of an untrained two-layer model over bytes of TEXT, and these bytes."""
    key = jax.random.key(0)
    config = models.Config(layers=2, width=dims.width, heads=dims.heads)
    encoding = schemes.build(GATED, dataclasses.replace(dims, layers=2), key=key)
    row = np.frombuffer(TEXT[:TOKENS], np.uint8).astype("int32")
    gates = diagnostics.gates(models.make(config, key), encoding, row)
    return gates, [chr(token) for token in row]
