"""AdamW with a schedule, and the choice of arrays that decay."""

import jax
import jax.numpy as jnp
import optax

from posenc_jax.encoding import Encoding
from posenc_jax.runs.parameters import trained_arrays, with_leaves


def schedule(config) -> optax.Schedule:
    """Warm-up, then a cosine to the final rate; or constant, then linear over the last fifth.

    Takes the count of finished steps: optax counts from 0, so the rate of step n is that of n - 1.
    The peak is reached at the end of the warm-up, the final rate at the last step.
    """
    peak, last = config.learning_rate, config.final_rate * config.learning_rate
    warmup = warmup_of(config)
    if config.schedule == "cosine":
        rate = optax.warmup_cosine_decay_schedule(
            0.0, peak, warmup, max(config.steps, warmup + 1), last
        )
    else:
        fall = max(1, config.steps // 5)
        rate = optax.join_schedules(
            [
                optax.linear_schedule(0.0, peak, max(1, warmup)),
                optax.constant_schedule(peak),
                optax.linear_schedule(peak, last, fall),
            ],
            [warmup, max(warmup, config.steps - fall)],
        )
    return lambda count: rate(count + 1)


def warmup_of(config) -> int:
    """Steps of the warm-up: those configured, a tenth of all steps at most."""
    return min(config.warmup_steps, max(1, config.steps // 10))


def make(config) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.adamw(
            schedule(config),
            b1=config.beta1,
            b2=config.beta2,
            weight_decay=config.weight_decay,
            mask=decays,
        ),
        optax.stateless(lambda updates, params: _scaled(updates, config.encoding_rate)),
    )


def _scaled(updates, rate: float):
    """Multiply the encoding's updates by its rate, after Adam has set their size."""
    return updates | {"encoding": jax.tree.map(lambda u: rate * u, updates["encoding"])}


def decays(params):
    """Whether an array decays, by path: matrices of blocks and output, never norms or positions."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: (
            path[0].key == "model"
            and path[1].key.startswith(("blocks.", "unembed."))
            and path[1].key.endswith(".kernel")
        ),
        params,
    )


def travel(config) -> float:
    """How far Adam can move an array of the encoding in the whole run: about its rate a step."""
    rates = jax.vmap(schedule(config))(jnp.arange(config.steps))
    return config.encoding_rate * float(jnp.sum(rates))


def reach(config, encoding: Encoding) -> float | None:
    """Logits by which the run can move an encoding's bias, to first order from its start: the
    maximum over heads and distances up to L. None where no bias is trained."""
    trained = trained_arrays(encoding)
    last = encoding.train_length - 1
    back = jnp.unique(jnp.geomspace(1, last + 1, 32).astype(jnp.int32) - 1)  # 0, 1, ..., L - 1

    def bias(arrays):
        return with_leaves(encoding, arrays).layer(0).bias(jnp.array([last]), last - back)

    if not trained or bias(trained) is None:
        return None
    slopes = jax.jacrev(bias)(trained)  # for every array: [H, 1, S, *shape]
    moved = sum(jnp.sum(jnp.abs(s).reshape(*s.shape[:3], -1), axis=-1) for s in slopes.values())
    return travel(config) * float(jnp.max(moved))
