"""The evaluation's text with every token twice; written by a test."""

import dataclasses

import numpy as np

from posenc_jax.evaluation.protocols.nonoverlap import NonOverlap


class Doubled(NonOverlap):
    title = "the text with every token doubled"
    order = 10

    def text(self, text, subject, lengths, config):
        split = text.split
        tokens = np.repeat(split.tokens, 2)
        starts = 2 * np.asarray(split.starts)
        doubled = dataclasses.replace(split, tokens=tokens, starts=starts, bytes_of=None)
        return dataclasses.replace(text, split=doubled, starts=2 * text.starts, source="doubled")


protocol = Doubled()
