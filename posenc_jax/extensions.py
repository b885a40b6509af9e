"""Context extensions: pure functions from a trained encoding to the same type with other numbers.

Each takes (encoding, scale, *, options). What a rotary extension changes is `inv_freq` and `gain`,
worked out in float64 on the host, so one compiled program serves all of them at every scale.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax.checks import check_options, choice, flag, known, positive
from posenc_jax.encoding import Encoding, fixed
from posenc_jax.schemes._rotation import frequencies
from posenc_jax.schemes.learned import Learned
from posenc_jax.schemes.randomized import Randomized
from posenc_jax.schemes.rope import RoPE


def extend(name: str, encoding: Encoding, scale: float, **options) -> Encoding:
    """The encoding with its context extended `scale` times.

    L of the formulas is `encoding.train_length`: what it was built for, and max_position around
    which randomized positions were drawn. For `dynamic_x` the scale is that of the window being
    read, its length over this L; below 1 it is 1.
    """
    known("extension", name, EXTENSIONS)
    if not isinstance(encoding, Encoding):
        raise ValueError(f"extend takes an encoding made by posenc_jax.build; got {encoding!r}")
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(encoding)):
        raise ValueError("extend works on the host: extend first, then hand the result to jax.jit")
    extension = EXTENSIONS[name]
    check_options(f"extension {name!r}", extension.apply, options)
    scale = positive("scale", scale)
    if name.startswith("dynamic_"):
        scale = max(1.0, scale)
    if scale < 1:
        raise ValueError(f"scale must be at least 1; got {scale!r}")
    if name not in fitting(encoding):
        made_for = ", ".join(kind.__module__.rpartition(".")[2] for kind in extension.fits)
        raise ValueError(
            f"extension {name!r} is made for {made_for} and does not fit encoding "
            f"{encoding.name!r}; those that do: {', '.join(fitting(encoding))}"
        )
    if name == "none":
        return encoding
    _check_not_extended(encoding)
    if name != "logn" and isinstance(encoding, Randomized):
        return encoding.replace(inner=extend(name, encoding.inner, scale, **options))
    return extension.apply(encoding, scale, **options)


def fitting(encoding: Encoding) -> list[str]:
    """The names of the extensions that fit an encoding."""
    carrier = encoding.inner if isinstance(encoding, Randomized) else encoding
    if isinstance(carrier, Learned) and carrier is not encoding:
        return ["none", "logn"]  # its rows are for max_position, which is not the table's to change
    return [name for name, e in EXTENSIONS.items() if isinstance(carrier, e.fits)]


def needs_options(name: str) -> bool:
    """Whether an extension says nothing by its name alone."""
    parameters = inspect.signature(EXTENSIONS[name].apply).parameters.values()
    return any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)


def none(encoding: Encoding, scale: float) -> Encoding:
    """The encoding as it was trained."""
    return encoding


def logn(encoding: Encoding, scale: float) -> Encoding:
    """Su 2021, https://kexue.fm/archives/8823: the query at p times max(1, ln(p + 1) / ln L)."""
    _check_log_length("logn", encoding)
    return encoding.replace(logn=True)


def pi(rope: RoPE, scale: float) -> RoPE:
    """Position interpolation, Chen et al. 2023, arXiv:2306.15595."""
    return _rotate(rope, _theta(rope) / scale)


def ntk(rope: RoPE, scale: float) -> RoPE:
    """NTK-aware base, bloc97 2023: base * scale^(R/(R-2)), written as what it does to each pair.

    The fastest pair is unchanged and the slowest divided by exactly the scale.
    """
    pairs = rope.inv_freq.shape[-1]
    if pairs < 2:
        raise ValueError("ntk needs at least 4 rotary dims, a fastest and a slowest pair; got 2")
    return _rotate(rope, _theta(rope) / scale ** (np.arange(pairs) / (pairs - 1)))


def yarn(
    rope: RoPE,
    scale: float,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    ramp: str = "dims",
    attention_factor: float | None = None,
) -> RoPE:
    """Peng et al. 2023, arXiv:2309.00071. Ramp 'dims' is that of its code, 'rotations' of its text.

    cos and sin are multiplied by 0.1 ln s + 1, and so the logits by its square; `attention_factor`
    replaces it.
    """
    if attention_factor is None:
        attention_factor = 0.1 * math.log(scale) + 1
    else:
        positive("attention_factor", attention_factor)
    parts = ntk_by_parts(
        rope, scale, beta_fast=beta_fast, beta_slow=beta_slow, truncate=truncate, ramp=ramp
    )
    return parts.replace(gain=fixed(_float64(rope.gain) * attention_factor))


def ntk_by_parts(
    rope: RoPE,
    scale: float,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    ramp: str = "dims",
) -> RoPE:
    """bloc97 2023: pairs that turn often within L are kept, slow ones divided; as in YaRN."""
    if positive("beta_fast", beta_fast) <= positive("beta_slow", beta_slow):
        raise ValueError(
            f"beta_fast must exceed beta_slow; got beta_fast={beta_fast}, beta_slow={beta_slow}"
        )
    flag("truncate", truncate)
    if choice("ramp", ramp, ("dims", "rotations")) == "dims":
        slowness = _ramp_over_dims(rope, scale, beta_fast, beta_slow, truncate)
    else:
        slowness = 1 - np.clip((turns(rope) - beta_slow) / (beta_fast - beta_slow), 0, 1)
    return _rotate(rope, _theta(rope) * (1 - slowness * (1 - 1 / scale)))


def _ramp_over_dims(rope, scale, beta_fast, beta_slow, truncate):  # [..., R/2]
    """0 where a pair is kept, 1 where it is divided by the scale."""
    rotary = 2 * rope.inv_freq.shape[-1]
    base = _float64(rope.base)[..., None]

    def dim(rotations):
        return rotary * np.log(rope.train_length / (2 * np.pi * rotations)) / (2 * np.log(base))

    low, high = dim(beta_fast), dim(beta_slow)
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = np.clip(low, 0, rotary - 1), np.clip(high, 0, rotary - 1)
    if scale > 1 and np.any(low == high):
        warnings.warn(
            f"YaRN's ramp collapses: with L = {rope.train_length} and {rotary} rotary dims its "
            f"ends for beta_fast = {beta_fast:g} and beta_slow = {beta_slow:g} coincide, so each "
            "pair is kept or divided, none between; choose other betas or ramp='rotations'",
            stacklevel=5,
        )
    high = np.where(low == high, high + 0.001, high)
    return np.clip((np.arange(rotary // 2) - low) / (high - low), 0, 1)


def llama3(rope: RoPE, scale: float, *, low: float = 1.0, high: float = 4.0) -> RoPE:
    """Dubey et al. 2024, arXiv:2407.21783: pairs kept above `high` turns, divided below `low`."""
    if positive("low", low) >= positive("high", high):
        raise ValueError(f"high must exceed low; got low={low}, high={high}")
    kept = np.clip((turns(rope) - low) / (high - low), 0, 1)
    return _rotate(rope, _theta(rope) * ((1 - kept) / scale + kept))


def longrope(rope: RoPE, scale: float, *, lambdas: Sequence[float]) -> RoPE:
    """Ding et al. 2024, arXiv:2402.13753: each pair divided by a factor found by search."""
    pairs = rope.inv_freq.shape[-1]
    if np.ndim(lambdas) != 1:
        raise ValueError(f"lambdas must be a list of {pairs} numbers; got {lambdas!r}")
    if len(lambdas) != pairs:
        raise ValueError(f"lambdas needs one factor per rotary pair, {pairs}; got {len(lambdas)}")
    divisors = np.array([positive("each of lambdas", factor) for factor in lambdas])
    _check_log_length("longrope", rope)
    gain = math.sqrt(1 + math.log(scale) / math.log(rope.train_length))
    extended = _rotate(rope, _theta(rope) / divisors)
    return extended.replace(gain=fixed(_float64(rope.gain) * gain))


def abf(rope: RoPE, scale: float, *, base: float) -> RoPE:
    """Adjusted base frequency, Xiong et al. 2023, arXiv:2309.16039."""
    positive("base", base, above=1.0)
    theta = frequencies(base, 2 * rope.inv_freq.shape[-1])
    return _rotate(rope, np.where(_theta(rope) == 0, 0, theta))


def interpolate(learned: Learned, scale: float) -> Learned:
    """Row p of the longer table is row p / scale of the trained one, linearly between rows.

    Places beyond the last trained row take that row.
    """
    table = _float64(learned.table)
    last = table.shape[-2] - 1
    place = np.minimum(np.arange(_rows(learned, scale)) / scale, last)
    below = np.floor(place).astype(int)
    share = (place - below)[:, None]
    above = np.minimum(below + 1, last)
    rows = table[..., below, :] * (1 - share) + table[..., above, :] * share
    return learned.replace(table=fixed(rows))


def clamp(learned: Learned, scale: float) -> Learned:
    """The last trained row repeated."""
    last = learned.table.shape[-2] - 1
    rows = np.minimum(np.arange(_rows(learned, scale)), last)
    return learned.replace(table=learned.table[..., rows, :])


class Extension(NamedTuple):
    apply: Callable
    fits: tuple[type[Encoding], ...]


EXTENSIONS = {
    "none": Extension(none, (Encoding,)),
    "pi": Extension(pi, (RoPE,)),
    "ntk": Extension(ntk, (RoPE,)),
    "ntk_by_parts": Extension(ntk_by_parts, (RoPE,)),
    "yarn": Extension(yarn, (RoPE,)),
    "dynamic_pi": Extension(pi, (RoPE,)),
    "dynamic_ntk": Extension(ntk, (RoPE,)),
    "dynamic_yarn": Extension(yarn, (RoPE,)),
    "llama3": Extension(llama3, (RoPE,)),
    "longrope": Extension(longrope, (RoPE,)),
    "abf": Extension(abf, (RoPE,)),
    "interpolate": Extension(interpolate, (Learned,)),
    "clamp": Extension(clamp, (Learned,)),
    "logn": Extension(logn, (Encoding,)),
}


def turns(rope: RoPE) -> np.ndarray:  # [..., R/2]
    """How often each pair turns within L."""
    return rope.train_length * _theta(rope) / (2 * np.pi)


def _theta(rope: RoPE) -> np.ndarray:
    """The frequencies before they were rounded; pairs without position stay without."""
    built = frequencies(_float64(rope.base), 2 * rope.inv_freq.shape[-1])
    return np.where(_float64(rope.inv_freq) == 0, 0, built)


def _rotate(rope: RoPE, theta: np.ndarray) -> RoPE:
    return rope.replace(inv_freq=fixed(theta))


def _rows(learned: Learned, scale: float) -> int:
    return math.ceil(scale * learned.train_length - 1e-6)


def _check_log_length(name: str, encoding: Encoding):
    if encoding.train_length < 2:
        raise ValueError(
            f"{name} divides by ln L and needs a train_length of at least 2; "
            f"got {encoding.train_length}"
        )


def _float64(array) -> np.ndarray:
    return np.asarray(array, np.float64)


def _check_not_extended(encoding: Encoding):
    """An extension is told by its numbers: there is no mark that could be lost or forged."""
    changed = encoding.logn
    if isinstance(encoding, Randomized):
        _check_not_extended(encoding.inner)
    if isinstance(encoding, Learned):
        changed |= encoding.table.shape[-2] != encoding.train_length
    if isinstance(encoding, RoPE):
        as_built = np.isclose(_float64(encoding.inv_freq), _theta(encoding), rtol=1e-6, atol=0)
        changed |= not as_built.all() or bool(jnp.any(encoding.gain != 1))
    if changed:
        raise ValueError(
            f"encoding {encoding.name!r} is already extended, or its numbers are not those of its "
            "base; start from the encoding as it was trained"
        )
