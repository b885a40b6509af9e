"""Schemes that depend on content: biases, logits and weights from given scores.

`scores` are q . k / sqrt(K).
"""

import numpy as np

from conformance.reference.rotation import _causal


def _sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def fox(gate_logits):
    """Forgetting attention, Lin et al. 2025, arXiv:2503.02130: biases [T, T] of gate logits [T].

    The bias is the sum of log sigmoid(g_t) over the tokens t after the key, up to the query.
    """
    steps = np.log(_sigmoid(gate_logits))
    length = len(steps)
    table = [[steps[j + 1 : i + 1].sum() for j in range(length)] for i in range(length)]
    return _causal(np.array(table))


def cope(scores, q_dot_e):
    """CoPE, Golovneva et al. 2024, arXiv:2405.18719: biases [T, T] of scores [T, T] and q . e
    [T, P].

    The position of a key is the sum of sigmoid(score) from it to the query, at most P - 1; between
    whole positions q . e is interpolated.
    """
    scores, q_dot_e = np.asarray(scores, np.float64), np.asarray(q_dot_e, np.float64)
    bias = np.full(scores.shape, np.nan)
    for i in range(len(scores)):
        for j in range(i + 1):
            position = _sigmoid(scores[i, j : i + 1]).sum()
            bias[i, j] = np.interp(position, np.arange(q_dot_e.shape[1]), q_dot_e[i])
    return bias


def relative(r, profiles):
    """Inkling, Thinking Machines 2026, after Shaw et al. 2018, arXiv:1803.02155: biases [T, T] of
    r [T, R] and profiles [R, E]: r_i . p_d, and 0 from distance E on."""
    r, profiles = np.asarray(r, np.float64), np.asarray(profiles, np.float64)
    table = np.zeros((len(r), len(r)))
    for i in range(len(r)):
        for j in range(i + 1):
            if i - j < profiles.shape[1]:
                table[i, j] = r[i] @ profiles[:, i - j]
    return _causal(table)


def dape(scores, bias, w1, b1, w2, b2):
    """DAPE, Zheng et al. 2024, arXiv:2405.14722: logits [H, T, T] of scores and biases [H, T, T].

    scores + bias + w2 LeakyReLU(w1 [scores; bias] + b1) + b2, over heads, with slope 0.01; w1 is
    [2H, F] and w2 [F, H].
    """
    scores, bias = np.asarray(scores, np.float64), np.asarray(bias, np.float64)
    both = np.moveaxis(np.concatenate([scores, bias]), 0, -1)  # [T, T, 2H]
    hidden = both @ np.asarray(w1, np.float64) + np.asarray(b1, np.float64)
    hidden = np.where(hidden < 0, 0.01 * hidden, hidden)
    change = hidden @ np.asarray(w2, np.float64) + np.asarray(b2, np.float64)
    return scores + bias + np.moveaxis(change, -1, 0)


def stick_breaking(scores, attend_current=False):
    """Stick-breaking, Tan et al. 2024, arXiv:2410.17980: weights [T, T] of scores [T, T].

    sigmoid(z_ij) times the product of 1 - sigmoid(z_it) over the keys t between j and the query,
    which attends to itself only with `attend_current`.
    """
    share = _sigmoid(scores)
    weights = np.zeros(share.shape)
    for i in range(len(share)):
        left = 1.0
        for j in reversed(range(i + bool(attend_current))):
            weights[i, j] = left * share[i, j]
            left *= 1 - share[i, j]
    return _causal(weights)


def sink(scores, sink):
    """A sink, OpenAI 2025, arXiv:2508.10925: softmax weights [S] of scores [S] and one more logit
    without a value, whose weight is left out."""
    powers = np.exp(np.asarray(scores, np.float64))
    return powers / (powers.sum() + np.exp(np.float64(sink)))


def selective_rope(x, heads, w1, w2, convolution, base=500_000.0):
    """Selective RoPE, Movahedi et al. 2025, arXiv:2511.17388: angles [T, H, K/2] of inputs x
    [T, D].

    Each head's share of x is divided by its length; w1 [D, R] and w2 [R, H, K/2] give a step, which
    a causal convolution [4, H, K/2], by tokens back, smooths. The angle is the sum of steps times
    base^(-2i/K).
    """
    x, w1, w2, convolution = (np.asarray(each, np.float64) for each in (x, w1, w2, convolution))
    share = x.reshape(len(x), heads, -1)
    share = share / np.linalg.norm(share, axis=-1, keepdims=True)
    steps = np.einsum("td,dr,rhp->thp", share.reshape(x.shape), w1, w2)
    smooth = np.zeros(steps.shape)
    for back in range(len(convolution)):
        smooth[back:] += convolution[back] * steps[: len(steps) - back]
    pairs = w2.shape[-1]
    return np.cumsum(smooth, axis=0) * np.float64(base) ** (-np.arange(pairs) / pairs)
