"""Perplexity of the targets that far context decides (Fang et al., 2024, arXiv:2410.23771).

A reference, another run, chooses them: its loss falls by more than 2 nats from a short to the
longest context, and is then below 2. Chosen by the evaluated model itself, they would favour it.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from posenc_jax.config.schema import Evaluation
from posenc_jax.evaluation.protocols.same_token import LastTargets
from posenc_jax.evaluation.windows import Reading, Text, plan_of
from posenc_jax.runtime.errors import ConfigError

GAIN, LOSS = 2.0, 2.0  # nats, as published
FEW = 100  # targets


class LongPPL(LastTargets):
    title = "the targets of same_token that far context decides for a reference model"
    order = 3
    value = "ppl"
    reads = ("reference", "short")

    def mistake(self, config: Evaluation) -> str | None:
        if config.reference:
            return None
        return f"{self.name} in protocols needs reference=RUN, a run trained at the longest length"

    def text(self, text: Text, subject: Any, lengths: Sequence[int], config: Evaluation) -> Text:
        """The text, with a mask of the last targets [W, K] that far context decides."""
        last = self.span(config, subject.trained, lengths)
        keys = keys_of(text, subject, config, last)
        count, targets = int(keys.sum()), keys.size
        if not count:
            raise ConfigError(
                f"{self.name}: far context decides none of {targets:,} targets for "
                f"{config.reference}; give more text, a larger last, or another reference"
            )
        few = f", too few for a mean below {FEW}: give more text" if count < FEW else ""
        tqdm.write(f"{self.name}: far context decides {count:,} of {targets:,} targets{few}")
        return dataclasses.replace(text, of_protocol=keys)

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        assert span is not None
        reading = self.plan(text, length, span)
        kept = np.zeros((len(reading.starts), length), bool)
        kept[:, length - span :] = text.of_protocol
        return [dataclasses.replace(reading, kept=kept)]

    def warning(self, windows: int, span: int | None) -> str | None:
        return None  # the number of targets is known once the reference has read the text


def keys_of(text: Text, subject: Any, config: Evaluation, last: int) -> np.ndarray:  # [W, K]
    """Mask of the last targets of each window that far context decides for the reference."""
    from posenc_jax.evaluation import check
    from posenc_jax.evaluation.losses import placing, reader_of
    from posenc_jax.runs.subject import load_subject

    reference = load_subject(Path(config.reference), place=placing(config))
    short = config.short or subject.trained
    _check(text, subject, reference, short, last)
    check.refuse_uncut(config, reference.parts.encoding)
    reader = reader_of(config, reference, text.split.tokens)

    def nats(length: int) -> np.ndarray:  # [W, K]
        offsets = np.full((len(text.starts), 1), text.longest - length)
        starts = plan_of(text, length, offsets, 0).starts
        return reader(reference.parts.encoding, starts, length, last)[0]

    near, whole = nats(short), nats(text.longest)
    return (near - whole > GAIN) & (whole < LOSS)


def _check(text: Text, subject: Any, reference: Any, short: int, last: int) -> None:
    name = reference.name
    if reference.tokenizer.hash != subject.tokenizer.hash:
        raise ConfigError(f"reference {name} has another tokenizer than {subject.name}")
    if reference.trained < text.longest:
        raise ConfigError(
            f"reference {name} was trained at {reference.trained:,} tokens; its losses at "
            f"{text.longest:,} would be those of extrapolation: train one there, or lower multiples"
        )
    if not last <= short < text.longest:
        raise ConfigError(
            f"short must be at least last = {last:,} and below the longest length, "
            f"{text.longest:,}; got {short:,}"
        )
    known = ~text.split.without(reference.digests)[text.documents]
    if known.any():
        raise ConfigError(
            f"reference {name} was trained on {known.mean():.0%} of the documents read"
        )


protocol = LongPPL()
