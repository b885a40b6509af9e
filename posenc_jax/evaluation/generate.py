"""Continue a text with a run, and with any extension that fits it."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import models
from posenc_jax.checks import choice, token_count
from posenc_jax.data import tokenizer
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation.methods import extended_encoding
from posenc_jax.layers import holds_state
from posenc_jax.runs.parameters import key_of
from posenc_jax.runs.subject import Subject
from posenc_jax.runtime import devices
from posenc_jax.runtime.errors import ConfigError

# A dynamic extension: one scale for the whole row, that of the length so far, or the same with
# keys that stay rotated as they were first read.
SEMANTICS = ("window", "prefix", "stale")


def continued(
    subject: Subject,
    prompt: str,
    tokens: int,
    *,
    extension: str = "none",
    semantics: str = "window",
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    sequence: int = 1,
    sharding: str = "replicated",
) -> Iterator[str]:
    """Yield the text that follows a prompt, as it is generated, up to the end of the text.

    `sequence` devices share the cache, and with `sharding="fsdp"` the weights.
    """
    devices.check(sequence)
    choice("semantics", semantics, SEMANTICS)
    choice("sharding", sharding, devices.MODES)
    token_count("tokens", tokens)
    encoder = subject.tokenizer
    ids = encoder.encode(prompt, "the prompt") if prompt else np.zeros(0, np.int32)
    first = 0 if subject.parts.model.config.bos else subject.prefix  # 0: for the trained vector
    if first is not None:
        ids = np.concatenate([[first], ids])
    if not len(ids):
        raise ConfigError("prompt is empty; give at least one token to continue")
    end = tokenizer.end_of_text(encoder)
    pieces = models.stream(
        subject.parts.model.unstacked(),  # views, where its arrays are on the host
        _encodings(subject, extension, semantics, len(ids), tokens),
        ids[None],
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        key=key_of(seed),
        stop=end,
        rotated=True if semantics == "stale" else None,
        mesh=devices.make_mesh(jax.devices()[:sequence], sequence) if sequence > 1 else None,
        sharding=sharding,
    )
    # Decoded with the prompt: a tokenizer may drop the space at the beginning of a text.
    written, so_far = encoder.decode(ids), ids
    for piece in pieces:
        so_far = np.concatenate([so_far, np.asarray(piece)[0]])
        ends = len(ids) + np.flatnonzero(so_far[len(ids) :] == end)
        text = encoder.decode(so_far[: ends[0]] if len(ends) else so_far)
        if not len(ends) and len(so_far) < len(ids) + tokens:
            text = text.rstrip("\ufffd")  # a character whose other bytes follow
        yield text[len(written) :]
        written = text


def _encodings(
    subject: Subject, extension: str, semantics: str, length: int, tokens: int
) -> Encoding | list[Encoding]:
    """The encoding of the whole row, or one for each step."""

    def at(length: int) -> Any:
        scaled = max(length, subject.original)
        return extended_encoding(subject, extension, scaled)[0]

    if semantics == "window":
        return at(length + tokens - 1)
    if semantics == "prefix" and _sums_rotated_keys(at(length)):
        raise ConfigError(
            "semantics = 'prefix' rotates the keys anew at every step, but a layer of encoding "
            f"{subject.parts.encoding.name!r} holds their sum in their place; use 'window' or "
            "'stale'"
        )
    return [at(length + step) for step in range(tokens)]


def _sums_rotated_keys(encoding: Encoding) -> bool:
    layers = map(encoding.layer, range(encoding.period))
    return any(holds_state(layer) and layer.phase(np.zeros(1)) is not None for layer in layers)
