"""AdamW with a schedule, and the rule of what decays."""

import jax
import optax


def schedule(config) -> optax.Schedule:
    """Warm-up, then a cosine to the final rate; or constant, then linear over the last fifth.

    Of a count of steps made: optax counts from 0, so that the rate of step n is that of n - 1. The
    peak is reached at step `warmup_steps`, the final rate at the last one.
    """
    peak, last = config.learning_rate, config.final_rate * config.learning_rate
    if config.schedule == "cosine":
        rate = optax.warmup_cosine_decay_schedule(
            0.0, peak, config.warmup_steps, max(config.steps, config.warmup_steps + 1), last
        )
    else:
        fall = max(1, config.steps // 5)
        rate = optax.join_schedules(
            [
                optax.linear_schedule(0.0, peak, max(1, config.warmup_steps)),
                optax.constant_schedule(peak),
                optax.linear_schedule(peak, last, fall),
            ],
            [config.warmup_steps, max(config.warmup_steps, config.steps - fall)],
        )
    return lambda count: rate(count + 1)


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
    """The encoding's own rate is a multiple of the others', after Adam has set their size."""
    return updates | {"encoding": jax.tree.map(lambda u: rate * u, updates["encoding"])}


def decays(params):
    """Matrices of the blocks and the output, by path. Never a norm, an embedding or a position."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: (
            path[0].key == "model"
            and path[1].key.startswith(("blocks.", "unembed."))
            and path[1].key.endswith(".kernel")
        ),
        params,
    )
