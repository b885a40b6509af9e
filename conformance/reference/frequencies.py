"""Frequencies of RoPE and its extensions: theta_i = base^(-2i/R) for R = head_dim, i < R/2.

L is `train_length`, the length before the extension, and s the `scale`. An `attention_factor`
multiplies cos and sin of queries and keys alike, hence logits by its square.
"""

import math

import numpy as np


def _theta(head_dim, base):
    return np.float64(base) ** (-np.arange(0, head_dim, 2) / head_dim)


def pi(head_dim, base, scale):
    """Position interpolation, Chen et al. 2023, arXiv:2306.15595: theta / s [R/2]."""
    return _theta(head_dim, base) / scale


def ntk(head_dim, base, scale, rule="bloc97", train_length=None):
    """NTK-aware, bloc97 2023: the base becomes base s^(R/(R-2)); frequencies [R/2].

    With rule="gradient", as KoboldCpp after Gradient AI 2024, it becomes
    base^(ln(s L / 2 pi) / ln(L / 2 pi)). L matters there alone.
    """
    if rule == "gradient":
        before, after = (length / (2 * math.pi) for length in (train_length, scale * train_length))
        return _theta(head_dim, np.float64(base) ** (math.log(after) / math.log(before)))
    return _theta(head_dim, base * scale ** (head_dim / (head_dim - 2)))


def ntk_by_parts(
    head_dim, base, train_length, scale, beta_fast=32.0, beta_slow=1.0, truncate=True, ramp="dims"
):
    """NTK-by-parts, bloc97 2023: YaRN's frequencies [R/2], without its factor on logits."""
    theta, pair = _theta(head_dim, base), np.arange(head_dim // 2)
    if ramp == "rotations":  # equation 18 of the paper: by the turns of a pair within L
        turns = train_length * theta / (2 * np.pi)
        kept = np.clip((turns - beta_slow) / (beta_fast - beta_slow), 0, 1)
        return (1 - kept) * theta / scale + kept * theta

    def index(turns):  # of the pair that makes so many turns within L
        return head_dim * math.log(train_length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = index(beta_fast), index(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    if ramp == "radix":  # MrRoPE
        power = (pair - low) * (pair - low + 1) / ((high - low) * (high - low + 1))
        power = np.where(pair <= low, 0, np.where(pair >= high, 1, power))
        return theta / scale**power
    slowness = np.clip((pair - low) / (high - low), 0, 1)
    return theta / scale * slowness + theta * (1 - slowness)


def yarn(
    head_dim,
    base,
    train_length,
    scale,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=True,
    ramp="dims",
    attention_factor=None,
    coefficient=0.1,
):
    """YaRN, Peng et al. 2023, arXiv:2309.00071: frequencies [R/2], and a factor 0.1 ln s + 1.

    The ramp runs over the indices of pairs (ramp="dims"), as in the authors' code, which rounds its
    ends outwards (`truncate`). ramp="rotations" is the formula of the paper's text, and "radix"
    that of MrRoPE-Pro, Tian et al. 2026, arXiv:2601.22181. The factor is `coefficient` ln s + 1
    (TeleChat3: 0.07), unless `attention_factor` is given.
    """
    inv_freq = ntk_by_parts(
        head_dim, base, train_length, scale, beta_fast, beta_slow, truncate, ramp
    )
    if attention_factor is None:
        attention_factor = coefficient * math.log(scale) + 1 if scale > 1 else 1.0
    return {"inv_freq": inv_freq, "attention_factor": attention_factor}


def _read(length, train_length):
    """The scale of the dynamic extensions."""
    return max(1.0, length / train_length)


def dynamic_pi(head_dim, base, train_length, length):
    """`pi` at s = max(1, length / L), `length` being the tokens read; frequencies [R/2]."""
    return pi(head_dim, base, _read(length, train_length))


def dynamic_ntk(head_dim, base, train_length, length):
    """`ntk` at s = max(1, length / L), `length` being the tokens read; frequencies [R/2]."""
    return ntk(head_dim, base, _read(length, train_length))


def dynamic_yarn(head_dim, base, train_length, length):
    """`yarn` at s = max(1, length / L), `length` being the tokens read."""
    return yarn(head_dim, base, train_length, _read(length, train_length))


def _step(length, train_length):
    """The least power of two that reaches the length."""
    step = 1
    while step * train_length < length:
        step *= 2
    return step


def stepped_ntk(head_dim, base, train_length, length):
    """`ntk` at the least power of two s with s L >= length; frequencies [R/2]."""
    return ntk(head_dim, base, _step(length, train_length))


def stepped_yarn(head_dim, base, train_length, length):
    """`yarn` at the least power of two s with s L >= length."""
    return yarn(head_dim, base, train_length, _step(length, train_length))


def llama3(head_dim, base, train_length, scale, low=1.0, high=4.0):
    """Dubey et al. 2024, arXiv:2407.21783: frequencies [R/2], divided where a pair turns less
    than `low` times within L, kept above `high` times."""
    frequencies = []
    for theta in _theta(head_dim, base):
        wavelength = 2 * math.pi / theta
        if wavelength > train_length / low:
            frequencies.append(theta / scale)
        elif wavelength < train_length / high:
            frequencies.append(theta)
        else:
            smooth = (train_length / wavelength - low) / (high - low)
            frequencies.append((1 - smooth) * theta / scale + smooth * theta)
    return np.array(frequencies)


def longrope(
    head_dim,
    base,
    train_length,
    scale,
    lambdas,
    attention_factor=None,
    short=None,
    length=None,
):
    """LongRoPE, Ding et al. 2024, arXiv:2402.13753: theta_i / lambda_i [R/2], and a factor
    sqrt(1 + ln s / ln L), unless `attention_factor` is given.

    With `short`, as Phi-3, theta is divided by that list where `length`, the tokens read, is at
    most L. The factor is the same.
    """
    if attention_factor is None:
        attention_factor = math.sqrt(1 + math.log(scale) / math.log(train_length))
    chosen = short if short is not None and length <= train_length else lambdas
    inv_freq = _theta(head_dim, base) / np.asarray(chosen, np.float64)
    return {"inv_freq": inv_freq, "attention_factor": attention_factor}


def abf(head_dim, base):
    """Adjusted base frequency, Xiong et al. 2023, arXiv:2309.16039: RoPE's frequencies [R/2] for
    another base."""
    return _theta(head_dim, base)


def drop(head_dim, base, train_length, keep="turned", clip="hard"):
    """Frequencies [R/2] with slow pairs at 0.

    A share `keep` keeps the int(keep R / 2) fastest (p-RoPE, Barbero et al. 2024,
    arXiv:2410.06205), and "turned" those that complete a turn within L (HoPE, Chen et al. 2024,
    arXiv:2410.21216). clip="soft" multiplies the other n by (1 + cos t) / 2 with n values of t from
    0 to pi: Clipped RoPE, Li et al. 2026, arXiv:2602.05258, whose authors call it CoPE.
    """
    theta = _theta(head_dim, base)
    if keep == "turned":
        kept = int(np.sum(2 * np.pi / theta <= train_length))
    else:
        kept = int(keep * head_dim // 2)
    dropped = len(theta) - kept
    clipped = 0 if clip == "hard" else (1 + np.cos(np.linspace(0, np.pi, dropped))) / 2
    theta[kept:] *= clipped
    return theta
