"""AdamW, or Muon for the matrices of blocks, with a schedule and weight decay on matrices."""

import functools

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from posenc_jax.encoding import Encoding
from posenc_jax.runs.parameters import models, trained_arrays
from posenc_jax.runtime.trees import with_leaves


def schedule(config) -> optax.Schedule:
    """Warm up, then follow a cosine, or stay constant and fall linearly over the last fifth.

    Takes the count of finished steps: optax counts from 0, so step n has the rate at count n - 1.
    The peak is at the end of the warm-up, and the final rate at the last step.
    """
    peak, last = config.learning_rate, config.final_rate * config.learning_rate
    warmup = warmup_of(config)
    if config.schedule == "cosine":
        rate = optax.warmup_cosine_decay_schedule(
            0.0, peak, warmup, max(config.steps, warmup + 1), last
        )
    else:
        until = constant_until(config)
        rate = optax.join_schedules(
            [
                optax.linear_schedule(0.0, peak, max(1, warmup)),
                optax.constant_schedule(peak),
                optax.linear_schedule(peak, last, config.steps - until),
            ],
            [warmup, max(warmup, until)],
        )
    return lambda count: rate(count + 1)


def constant_until(config) -> int:
    """Return the last step before a linear schedule falls."""
    return config.steps - max(1, config.steps // 5)


def warmup_of(config) -> int:
    """Return the warm-up steps: as configured, but at most a tenth of all steps."""
    return min(config.warmup_steps, max(1, config.steps // 10))


def make(config) -> optax.GradientTransformation:
    mask = functools.partial(decays, family=models.family(config.model))
    adam = optax.scale_by_adam(b1=config.beta1, b2=config.beta2, mu_dtype=config.mu_dtype)
    direction = adam if config.optimizer == "adamw" else _muon_beside(adam, mask)
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.chain(
            direction,
            optax.add_decayed_weights(config.weight_decay, mask),
            optax.scale_by_learning_rate(schedule(config)),
        ),
        optax.stateless(lambda updates, params: _scaled(updates, config.encoding_rate)),
    )


def _muon_beside(adam: optax.GradientTransformation, mask) -> optax.GradientTransformation:
    """Muon for stacks of matrices with weight decay, `adam` for everything else.

    Jordan, 2024; updates have the root mean square of AdamW's, so that both share rate and decay:
    Liu et al., 2025, arXiv:2502.16982.
    """
    axes = optax.contrib.MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)

    def kinds(params):
        def kind(leaf, decayed: bool) -> str:
            return "muon" if decayed and leaf.ndim == 3 else "adam"  # [layers, in, out]

        return jax.tree.map(kind, params, mask(params))

    muon = optax.chain(
        optax.contrib.scale_by_muon(
            ns_steps=0, weight_dimension_numbers=lambda params: jax.tree.map(lambda _: axes, params)
        ),
        optax.stateless(lambda updates, _: jax.tree.map(_orthogonal, updates)),
    )
    return optax.partition({"muon": muon, "adam": adam}, kinds)


def _orthogonal(stack: jax.Array) -> jax.Array:  # [layers, in, out]
    """Orthogonalise matrices one after another, since at once they need ten times the memory."""
    muon = optax.contrib.scale_by_muon(beta=0.0, nesterov=False)  # of a matrix without a past

    def one(matrix):
        return muon.update(matrix, muon.init(matrix))[0]

    return 0.2 * max(stack.shape[1:]) ** 0.5 * jax.lax.map(one, stack)


def _scaled(updates, rate: float):
    """Multiply the encoding's updates by `encoding_rate`."""
    return updates | {"encoding": jax.tree.map(lambda u: rate * u, updates["encoding"])}


def decays(params, family):
    """Mask of arrays with weight decay: as the model has it, and none of the encoding."""
    return {
        "model": {name: family.decays(name) for name in params["model"]},
        "encoding": dict.fromkeys(params["encoding"], False),
    }


def travel(config) -> float:
    """Estimate how far a run can move an array of the encoding: by about its rate per step."""
    rates = jax.vmap(schedule(config))(jnp.arange(config.steps))
    return config.encoding_rate * float(jnp.sum(rates))


def bias_travel(config, encoding: Encoding) -> float | None:
    """Estimate by how many logits a run can move an encoding's bias: to first order, the maximum
    over heads and distances up to L; None without a trained bias."""
    trained = trained_arrays(encoding)
    last = encoding.train_length - 1
    back = jnp.unique(jnp.geomspace(1, last + 1, 32).astype(jnp.int32) - 1)  # 0, 1, ..., L - 1

    def bias(arrays):
        return with_leaves(encoding, arrays).layer(0).bias(jnp.array([last]), last - back)

    if not trained or bias(trained) is None:
        return None
    slopes = jax.jacrev(bias)(trained)  # for every array: [H, 1, S, *shape]
    moved = sum(jnp.sum(jnp.abs(s).reshape(*s.shape[:3], -1), axis=-1) for s in slopes.values())
    most = float(jnp.max(moved))
    return travel(config) * most if most else None  # 0: the trained arrays are not of the bias
