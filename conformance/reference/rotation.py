"""Rotations of queries and keys, and vectors added to embeddings."""

import numpy as np

from conformance.reference.frequencies import _theta, dynamic_ntk, longrope


def _turned(x, angle, layout="half"):  # [T, H, K], angles [T, 1 or H, R/2]
    """Rotate the first R entries of each head by pairs."""
    pairs = angle.shape[-1]
    first, second = np.arange(pairs), np.arange(pairs) + pairs
    if layout == "interleaved":
        first, second = 2 * np.arange(pairs), 2 * np.arange(pairs) + 1
    out = np.array(x, np.float64)
    out[..., first] = x[..., first] * np.cos(angle) - x[..., second] * np.sin(angle)
    out[..., second] = x[..., second] * np.cos(angle) + x[..., first] * np.sin(angle)
    return out


def rope(x, positions, base=10_000.0, fraction=1.0, layout="half"):
    """RoPE, Su et al. 2021, arXiv:2104.09864: queries or keys x [T, H, K], rotated [T, H, K].

    The first R = fraction K entries are rotated, with exponents over R. Pairs are (i, i + R/2) in
    the layout "half" and (2i, 2i + 1) in "interleaved".
    """
    x = np.asarray(x, np.float64)
    rotary = int(fraction * x.shape[-1])
    return _turned(x, np.multiply.outer(positions, _theta(rotary, base))[:, None], layout)


def xpos(q, k, positions, base=10_000.0):
    """xPos, Sun et al. 2022, arXiv:2212.10554: logits q . k / sqrt(K) [H, T, T] of q and k
    [T, H, K].

    Pairs are (i, i + K/2). RoPE's products of pair i are multiplied by zeta^(d / 512) at distance
    d, with zeta = (2i + 0.4 K) / (1.4 K).
    """
    q, k, positions = (np.asarray(x, np.float64) for x in (q, k, positions))
    size = q.shape[-1]
    zeta = (np.arange(0, size, 2) + 0.4 * size) / (1.4 * size)
    power = (positions / 512)[:, None, None]
    q, k = rope(q, positions, base), rope(k, positions, base)
    q, k = q * np.tile(zeta, 2) ** power, k * np.tile(zeta, 2) ** -power
    return _causal(np.einsum("ihk,jhk->hij", q, k) / size**0.5)


def _causal(table):  # [..., T, T]
    """NaN above the diagonal, where nothing is compared."""
    return np.where(np.tri(table.shape[-1], dtype=bool), table, np.nan)


def sinusoidal(positions, width):
    """Vaswani et al. 2017, arXiv:1706.03762: vectors [T, D] of sin and cos of
    pos / 10000^(2i/D) by turns."""
    entry = np.arange(width)
    angle = np.divide.outer(positions, 10_000.0 ** (2 * (entry // 2) / width))
    return np.where(entry % 2 == 0, np.sin(angle), np.cos(angle))


def interpolate(table, scale):
    """A learned table [L, D] stretched to [s L, D]: row p is the trained row p / s, linearly
    between two rows; the last row is repeated."""
    table = np.asarray(table, np.float64)
    place = np.arange(round(scale * len(table))) / scale
    return np.stack([np.interp(place, np.arange(len(table)), column) for column in table.T], axis=1)


def clamp(table, scale):
    """A learned table [L, D] continued to [s L, D] by its last row."""
    table = np.asarray(table, np.float64)
    return np.concatenate([table, np.tile(table[-1], (round(scale * len(table)) - len(table), 1))])


def stale(q, k, base, train_length, prompt, lambdas=None, short=None):
    """One token after another, through a cache: logits q . k / sqrt(K) [T - prompt, T] of the
    tokens after the prompt, as each would have them in one pass over the tokens up to it.

    q and k are [T, K], of one head. The first `prompt` tokens are read at once. Frequencies are
    those of `dynamic_ntk` at the tokens read so far, or of `longrope`, with a factor of 1, where
    `lambdas` is given: so keys that were cached must be rotated anew when they change.
    """
    given = q, k, base, train_length, prompt, lambdas, short
    return _decoded(lambda key, prompt, read: read, *given)


def _decoded(tokens_of, q, k, base, train_length, prompt, lambdas, short):
    """The same where the frequencies of a key are those of so many tokens read."""
    q, k = (np.asarray(x, np.float64)[:, None] for x in (q, k))
    logits, size = np.full((len(q) - prompt, len(q)), np.nan), q.shape[-1]
    for row, read in enumerate(range(prompt + 1, len(q) + 1)):
        angle = np.empty((read, 1, size // 2))
        for key in range(read):
            length = tokens_of(key, prompt, read)
            if lambdas is None:
                inv_freq = dynamic_ntk(size, base, train_length, length)
            else:
                given = (lambdas, 1.0, short, length)
                inv_freq = longrope(size, base, train_length, 1.0, *given)["inv_freq"]
            angle[key] = key * inv_freq
        query, keys = _turned(q[:read], angle)[-1, 0], _turned(k[:read], angle)[:, 0]
        logits[row, :read] = keys @ query / np.sqrt(size)
    return logits
