"""Extensions of RoPE that change frequencies and the scale of logits.

They change `inv_freq` and `gain`, computed in float64 on the host, so one compiled program serves
all of them at every scale. Frequencies of 0 stay 0, including those dropped by `keep`.

Trained frequencies are inv_freq exp(alpha). Extensions change inv_freq and leave alpha, and count
the turns of inv_freq, so fine-tuning with an extension does not change the extension.
"""

import math
import warnings
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from posenc_jax.checks import LARGEST_SCALE, choice, flag, positive
from posenc_jax.encoding import Encoding, fixed
from posenc_jax.extensions._record import Kind, check_log_length, extension, float64
from posenc_jax.schemes._rotation import frequencies
from posenc_jax.schemes.rope import RoPE, check_keep, drop_pairs


def _is_rotated(rope: Encoding) -> bool:
    """True if frequencies or gain differ from their values as built."""
    if not isinstance(rope, RoPE):
        return False
    as_built = np.isclose(float64(rope.inv_freq), _theta(rope), rtol=1e-6, atol=0)
    changed = not as_built.all() or rope.short is not None
    return changed or bool(np.any(float64(rope.gain) != 1))


def _has_dropped(rope: Encoding) -> bool:
    """True if pairs have been dropped since building, in a layer that still has some."""
    if not isinstance(rope, RoPE):
        return False
    zero = float64(rope.inv_freq) == 0
    return bool(np.any(zero & (_as_built(rope) != 0) & ~zero.all(axis=-1, keepdims=True)))


ROTATION = Kind("rotation", _is_rotated)
DROP = Kind("drop", _has_dropped)


@extension(ROTATION, scale="given", of=RoPE)
def pi(rope: RoPE, scale: float) -> RoPE:
    """Position interpolation, Chen et al. 2023, arXiv:2306.15595."""
    return _rotate(rope, _theta(rope) / scale)


@extension(ROTATION, scale="given", of=RoPE)
def ntk(rope: RoPE, scale: float, *, rule: str = "bloc97") -> RoPE:
    """NTK-aware base, bloc97 2023: base * scale^(R/(R-2)), computed as a factor per pair.

    The fastest pair is unchanged, and the slowest is divided by exactly the scale. With
    rule="gradient", Gradient AI's of 2024, it is base^(ln(s L / 2 pi) / ln(L / 2 pi)).
    """
    if choice("rule", rule, ("bloc97", "gradient")) == "gradient":
        turns_of_first = rope.train_length / (2 * np.pi)
        if turns_of_first <= 1:
            raise ValueError(
                "ntk with rule='gradient' divides by ln(L / 2 pi) and needs a train_length of at "
                f"least 7; got {rope.train_length}"
            )
        return _rotate(rope, _theta(rope) ** (1 + math.log(scale) / math.log(turns_of_first)))
    pairs = rope.inv_freq.shape[-1]
    if pairs < 2:
        raise ValueError("ntk needs at least 4 rotary dims, a fastest and a slowest pair; got 2")
    return _rotate(rope, _theta(rope) / scale ** (np.arange(pairs) / (pairs - 1)))


@extension(ROTATION, scale="given", of=RoPE)
def ntk_by_parts(
    rope: RoPE,
    scale: float,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    ramp: str = "dims",
) -> RoPE:
    """NTK-by-parts, bloc97 2023: fast pairs are kept and slow ones divided, as in YaRN."""
    flag("truncate", truncate)
    choice("ramp", ramp, ("dims", "rotations", "radix"))
    fast, slow = positive("beta_fast", beta_fast), positive("beta_slow", beta_slow)
    if fast < slow or (fast == slow and ramp == "rotations"):  # Kimi K2 has 1 and 1
        raise ValueError(
            f"beta_fast must exceed beta_slow; got beta_fast={beta_fast}, beta_slow={beta_slow}"
        )
    if ramp == "rotations":
        slowness = 1 - np.clip((turns(rope) - beta_slow) / (beta_fast - beta_slow), 0, 1)
    else:
        place, width = _ramp_over_dims(rope, scale, beta_fast, beta_slow, truncate)
        slowness = place / width
        if ramp == "radix":
            power = place * (place + 1) / (width * (width + 1))
            return _rotate(rope, _theta(rope) / scale**power)
    return _rotate(rope, _theta(rope) * (1 - slowness * (1 - 1 / scale)))


def _ramp_over_dims(rope, scale, beta_fast, beta_slow, truncate):  # [..., R/2] and [..., 1]
    """Return the pairs' places on the ramp, from 0 for those to keep to its width for those to
    divide by the scale."""
    rotary = 2 * rope.inv_freq.shape[-1]
    base = float64(rope.base)[..., None]

    def dim(rotations):
        return rotary * np.log(rope.train_length / (2 * np.pi * rotations)) / (2 * np.log(base))

    low, high = dim(beta_fast), dim(beta_slow)
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = np.clip(low, 0, rotary - 1), np.clip(high, 0, rotary - 1)
    if scale > 1 and np.any(low == high):
        warnings.warn(
            f"YaRN's ramp collapses: with L = {rope.train_length} and {rotary} rotary dims, its "
            f"ends for beta_fast = {beta_fast:g} and beta_slow = {beta_slow:g} coincide, so each "
            "pair is either kept or divided; choose other betas or ramp='rotations'",
            stacklevel=5,
        )
    high = np.where(low == high, high + 0.001, high)
    return np.clip(np.arange(rotary // 2) - low, 0, high - low), high - low


@extension(ROTATION, scale="given", of=RoPE)
def yarn(
    rope: RoPE,
    scale: float,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    ramp: str = "dims",
    attention_factor: float | str | None = None,
    coefficient: float = 0.1,
    frequency_scale: float | None = None,
) -> RoPE:
    """Peng et al. 2023, arXiv:2309.00071; ramp='dims' as in its code, 'rotations' as in its text,
    'radix' as MrRoPE-Pro, Tian et al. 2026, arXiv:2601.22181: the pair i of a ramp of n is divided
    by s^(i (i + 1) / (n (n + 1))), in place of a mean of 1 and 1 / s.

    cos and sin are multiplied by `attention_factor` (None: `coefficient` ln s + 1), hence the
    logits by its square. With "query", it is 0.1 ln s + 1, where s is (position + 1) / L of the
    query, from 1 to the scale.
    `frequency_scale` is the s of the frequencies alone, which that of the factor does not exceed:
    the factor of `dynamic_yarn:frequency_scale=8` follows the row. These two scale whole queries
    and no keys, so that rotated keys stay valid.
    """
    slow = scale
    if frequency_scale is not None:
        slow = positive("frequency_scale", frequency_scale, above=1.0, at_most=LARGEST_SCALE)
    parts = ntk_by_parts(
        rope, slow, beta_fast=beta_fast, beta_slow=beta_slow, truncate=truncate, ramp=ramp
    )
    if attention_factor is not None and coefficient != 0.1:
        raise ValueError(
            f"coefficient = {coefficient!r} has no effect beside attention_factor = "
            f"{attention_factor!r}: it makes the factor, coefficient ln s + 1; give one of them"
        )
    positive("coefficient (attention_factor=1 is without)", coefficient, at_most=LARGEST_SCALE)
    most = min(scale, slow)
    by_query = attention_factor == "query"
    if by_query or (attention_factor is None and frequency_scale is not None):
        limits = (1.0 if by_query else most), most
        numbers = (*limits, coefficient)
        return parts.replace(stretch=tuple(jnp.full_like(rope.gain, n) for n in numbers))
    if attention_factor is None:
        attention_factor = coefficient * math.log(scale) + 1
    positive("attention_factor, unless 'query',", attention_factor, at_most=LARGEST_SCALE)
    return parts.replace(gain=fixed(float64(rope.gain) * attention_factor))


dynamic_pi = pi.at_the_length_read("dynamic_pi")
dynamic_ntk = ntk.at_the_length_read("dynamic_ntk")
dynamic_yarn = yarn.at_the_length_read("dynamic_yarn")
stepped_ntk = ntk.in_steps("stepped_ntk")
stepped_yarn = yarn.in_steps("stepped_yarn")


@extension(ROTATION, scale="given", of=RoPE)
def llama3(rope: RoPE, scale: float, *, low: float = 1.0, high: float = 4.0) -> RoPE:
    """Dubey et al. 2024, arXiv:2407.21783: keep pairs above `high` turns, divide below `low`."""
    if positive("low", low) >= positive("high", high):
        raise ValueError(f"high must exceed low; got low={low}, high={high}")
    fastness = np.clip((turns(rope) - low) / (high - low), 0, 1)
    return _rotate(rope, _theta(rope) * ((1 - fastness) / scale + fastness))


@extension(ROTATION, scale="given", of=RoPE)
def longrope(
    rope: RoPE,
    scale: float,
    *,
    lambdas: Sequence[float],
    short: Sequence[float] | None = None,
    attention_factor: float | None = None,
) -> RoPE:
    """LongRoPE, Ding et al. 2024, arXiv:2402.13753: divide each pair by a searched factor, of
    `short` (None: the same) in rows of up to L tokens.

    cos and sin are multiplied by `attention_factor` (None: sqrt(1 + ln s / ln L)) in all rows.
    """
    extended = _rotate(rope, _theta(rope) / _divisors("lambdas", lambdas, rope))
    if short is not None:
        extended = extended.replace(short=fixed(_theta(rope) / _divisors("short", short, rope)))
    if attention_factor is None:
        check_log_length("longrope", rope)
        attention_factor = math.sqrt(1 + math.log(scale) / math.log(rope.train_length))
    else:
        positive("attention_factor", attention_factor, at_most=LARGEST_SCALE)
    return extended.replace(gain=fixed(float64(rope.gain) * attention_factor))


def _divisors(name: str, factors: Sequence[float], rope: RoPE) -> np.ndarray:  # [R/2]
    pairs = rope.inv_freq.shape[-1]
    if np.ndim(factors) != 1:
        raise ValueError(f"{name} must be a list of {pairs} numbers; got {factors!r}")
    if len(factors) != pairs:
        raise ValueError(
            f"{name} must have one factor per rotary pair, {pairs}; got {len(factors)}"
        )
    return np.array([positive(f"each of {name}", factor) for factor in factors])


@extension(ROTATION, scale="none", of=RoPE)
def abf(rope: RoPE, scale: float, *, base: float) -> RoPE:
    """Adjusted base frequency, Xiong et al. 2023, arXiv:2309.16039."""
    positive("base", base, above=1.0)
    theta = frequencies(base, 2 * rope.inv_freq.shape[-1])
    return _rotate(rope, np.where(_theta(rope) == 0, 0, theta))


@extension(DROP, scale="none", of=RoPE)
def drop(rope: RoPE, scale: float, *, keep: float | str = "turned", clip: str = "hard") -> RoPE:
    """Set the frequencies of slow pairs to 0, as RoPE's option `keep` does; keep=0 is NoPE.

    keep="turned" is the rule of HoPE, Chen et al. 2024, arXiv:2410.21216. With clip="soft", those
    of the same n pairs are multiplied by (1 + cos t) / 2, t from 0 to pi: Clipped RoPE, Li et al.
    2026, arXiv:2602.05258, whose authors call it CoPE. The encoding `cope` is another one.
    """
    kept = drop_pairs(_theta(rope), check_keep(keep), rope.train_length) != 0
    share = kept.astype(np.float64)
    if choice("clip", clip, ("hard", "soft")) == "soft":
        place, pairs = np.cumsum(~kept, axis=-1) - 1, np.sum(~kept, axis=-1, keepdims=True)
        share = np.where(kept, 1, (1 + np.cos(np.pi * place / np.maximum(pairs - 1, 1))) / 2)
    if rope.short is not None:
        rope = rope.replace(short=fixed(float64(rope.short) * share))
    return _rotate(rope, float64(rope.inv_freq) * share)


def turns(rope: RoPE) -> np.ndarray:  # [..., R/2]
    """Return the number of turns of each pair within L."""
    return rope.train_length * _theta(rope) / (2 * np.pi)


def _theta(rope: RoPE) -> np.ndarray:
    """Return the frequencies as built, in float64, with 0 for dropped pairs."""
    return np.where(float64(rope.inv_freq) == 0, 0, _as_built(rope))


def _as_built(rope: RoPE) -> np.ndarray:
    theta = frequencies(float64(rope.base), 2 * rope.inv_freq.shape[-1])
    return drop_pairs(theta, rope.keep, rope.train_length)


def _rotate(rope: RoPE, theta: np.ndarray) -> RoPE:
    return rope.replace(inv_freq=fixed(theta))
