"""Whole attentions: outputs [T, H, K] of q, k and v [T, H, K], causal, logits over sqrt(K)."""

import math

import numpy as np

from conformance.reference.frequencies import _theta, yarn
from conformance.reference.rotation import _turned, rope


def _attended(logits, v):  # [H, T, T], [T, H, K] -> [T, H, K]
    logits = np.where(np.tri(logits.shape[-1], dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.einsum("hij,jhk->ihk", weights / weights.sum(-1, keepdims=True), v)


def _products(q, k):  # [T, H, K] twice -> [H, T, T]
    return np.einsum("ihk,jhk->hij", q, k)


def pope(q, k, v, bias, base=10_000.0):
    """PoPE, Gopalakrishnan et al. 2025, arXiv:2509.10534: outputs [T, H, K].

    The logit is sum over c < K of softplus(q_c) softplus(k_c) cos(theta_c (i - j) - b_c) / sqrt(K),
    with theta_c = base^(-c/K), and b = `bias` [H, K] clamped to [-2 pi, 0].
    """
    q, k, v, bias = (np.asarray(x, np.float64) for x in (q, k, v, bias))
    size, place = q.shape[-1], np.arange(len(q))
    theta = np.float64(base) ** (-np.arange(size) / size)
    angle = np.multiply.outer(np.subtract.outer(place, place), theta)[:, :, None]  # [T, T, 1, K]
    angle = angle - np.clip(bias, -2 * math.pi, 0)
    q, k = np.log1p(np.exp(q)), np.log1p(np.exp(k))
    return _attended(np.einsum("ihk,jhk,ijhk->hij", q, k, np.cos(angle)) / size**0.5, v)


def fope(q, k, v, cosines, sines, train_length, base=10_000.0):
    """FoPE, Hua et al. 2024, arXiv:2412.17739: outputs [T, H, K].

    Of the pairs (i, i + K/2) of a head the F with theta_i >= 2 pi / train_length are turned: the
    cosine of pair i at position t is sum over j < F of cosines[h, j, i] cos(theta_j t), the sine
    that over sines[h, j, i] sin(theta_j t), of `cosines` and `sines` [H, F, F]. The other pairs
    stay as they are: cosine 1, sine 0.
    """
    q, k, v, cosines, sines = (np.asarray(x, np.float64) for x in (q, k, v, cosines, sines))
    theta = _theta(q.shape[-1], base)
    turned = np.count_nonzero(theta >= 2 * math.pi / train_length)
    angle = np.multiply.outer(np.arange(len(q)), theta[:turned])  # [T, F]
    cos = np.einsum("tj,hji->thi", np.cos(angle), cosines)
    sin = np.einsum("tj,hji->thi", np.sin(angle), sines)
    still = np.ones((*cos.shape[:2], len(theta) - turned))
    cos, sin = np.concatenate([cos, still], -1), np.concatenate([sin, 0 * still], -1)

    def rotated(x):
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    return _attended(_products(rotated(q), rotated(k)) / q.shape[-1] ** 0.5, v)


def rope_imaginary(q, k, v, base=10_000.0):
    """RoPE++, Liu et al. 2025, arXiv:2512.07525: outputs [T, H, K].

    The first half of the heads is RoPE's. The logits of the second half are the imaginary part
    (q . k) sin(theta d) - (q x k) cos(theta d) of each pair (i, i + K/2): their queries are turned
    by a further -pi/2.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    length, heads, size = q.shape
    angle = np.multiply.outer(np.arange(length), _theta(size, base))[:, None]  # [T, 1, K/2]
    further = np.where(np.arange(heads) < heads // 2, 0, -math.pi / 2)[None, :, None]
    return _attended(_products(_turned(q, angle + further), _turned(k, angle)) / size**0.5, v)


def retention(q, k, v, rotate=True):
    """RetNet, Sun et al. 2023, arXiv:2307.08621: outputs [T, H, K].

    The weight of a key is lambda^d q . k / sqrt(K), lambda = 1 - 2^(-5-h) of head h = 0 .. H - 1,
    and an output is divided by sqrt(its mean square + 1e-6). q and k are rotated as in RoPE with
    base 10,000, or not (Lightning attention, arXiv:2401.04658).
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    place = np.arange(len(q))
    if rotate:
        q, k = rope(q, place), rope(k, place)
    back = np.subtract.outer(place, place)
    decay = np.where(back < 0, 0, (1 - 2.0 ** (-5 - np.arange(q.shape[1])))[:, None, None] ** back)
    out = np.einsum("hij,jhk->ihk", _products(q, k) / q.shape[-1] ** 0.5 * decay, v)
    return out / np.sqrt(np.mean(out**2, axis=-1, keepdims=True) + 1e-6)


def topk(q, k, v, k_largest, base=10_000.0):
    """RoPE's outputs [T, H, K] where a query attends to the keys of its `k_largest` highest logits
    alone, and to those of equal logits."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    place = np.arange(len(q))
    logits = _products(rope(q, place, base), rope(k, place, base)) / q.shape[-1] ** 0.5
    logits = np.where(np.tri(len(q), dtype=bool), logits, -np.inf)
    if k_largest < len(q):
        least = np.sort(logits, axis=-1)[..., -k_largest, None]
        logits = np.where(logits >= least, logits, -np.inf)
    return _attended(logits, v)


def mla(
    x,
    heads,
    rotary_dim,
    q_proj,
    kv_a_proj,
    kv_a_norm,
    kv_b_proj,
    o_proj,
    train_length,
    base=10_000.0,
    scale=1.0,
    beta_fast=32.0,
    beta_slow=1.0,
):
    """Multi-head latent attention, DeepSeek-V3 2024, arXiv:2412.19437: outputs [T, D] of x [T, D].

    Matrices are [outputs, inputs]. A head's query is its content and `rotary_dim` rotated entries;
    its key is content from the latent, and rotated entries that all heads share. Pairs are (2i,
    2i + 1), and the latent passes an RMSNorm with epsilon 1e-6. With s > 1, frequencies are YaRN's
    and all logits are multiplied by (0.1 ln s + 1)^2.
    """
    x, q_proj, kv_a_proj, kv_a_norm, kv_b_proj, o_proj = (
        np.asarray(each, np.float64)
        for each in (x, q_proj, kv_a_proj, kv_a_norm, kv_b_proj, o_proj)
    )
    length, latent_dim = len(x), len(kv_a_norm)
    extended = yarn(rotary_dim, base, train_length, scale, beta_fast, beta_slow)
    angle = np.multiply.outer(np.arange(length), extended["inv_freq"])[:, None]
    q = (x @ q_proj.T).reshape(length, heads, -1)
    content = q.shape[-1] - rotary_dim
    latent, rotated = np.split(x @ kv_a_proj.T, [latent_dim], axis=-1)
    latent = latent / np.sqrt(np.mean(latent**2, axis=-1, keepdims=True) + 1e-6) * kv_a_norm
    k, v = np.split((latent @ kv_b_proj.T).reshape(length, heads, -1), [content], axis=-1)
    rotated = _turned(rotated[:, None], angle, "interleaved")
    logits = _products(q[..., :content], k) + _products(
        _turned(q[..., content:], angle, "interleaved"), np.repeat(rotated, heads, axis=1)
    )
    logits = logits / q.shape[-1] ** 0.5 * extended["attention_factor"] ** 2
    return _attended(logits, v).reshape(length, -1) @ o_proj.T
