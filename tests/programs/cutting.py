"""python cutting.py LENGTH NAME ...: losses and their gradients of rows over four devices.

Prints, for each encoding, the largest differences to those of one device as JSON. NAME@gpu and
NAME@tpu run the kernels of these platforms: formulas stand for cuDNN, and splash attention is
interpreted.
"""

import functools
import json
import sys
from contextlib import ExitStack
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.cudnn import fused_attention_stablehlo as cudnn  # noqa: TID251
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from sizes import DIMS, VARIANTS, VOCAB

import models
import posenc_jax
from posenc_jax.attention import gathered, kernels
from posenc_jax.runtime import devices

MESHES = {"2 x 2": 2, "1 x 4": 4}
PACKED = "rope", "fox", "relative", "selective_rope", "randomized", "yarn by query"
PACKED += ("stick_breaking with remainder",)
MORE = {"stick_breaking with remainder": ("stick_breaking", {"remainder": True}, "none")}
FIELDS = {"layers": 2, "width": DIMS.width, "heads": DIMS.heads, "vocab": VOCAB}


def scores_of(q, k, scale, is_causal):  # [B, T, H, K] and [B, T, G, K] -> [B, G, R, T, T]
    q = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    scores = scale * jnp.einsum("btgrk,bsgk->bgrts", q, k, precision="highest")
    return jnp.where(np.tri(q.shape[1], dtype=bool) | (not is_causal), scores, -jnp.inf)


def with_logsums(q, k, v, bias, *, scale, is_causal, window):
    """As cuDNN computes them, in float32."""
    scores = scores_of(q, k, scale, is_causal)
    weights = jax.nn.softmax(scores)
    out = jnp.einsum("bgrts,bsgk->btgrk", weights, v, precision="highest")
    logsum = jax.nn.logsumexp(scores, axis=-1)
    return out.reshape(q.shape), logsum.reshape(len(q), -1, q.shape[1])


def gradients_of_cudnn(
    scale, seed, rate, has, mask, layout, window, version, training, saved, d_out
):
    """Those of FlashAttention's backward pass, from a given output and log-sum."""
    (q, k, v, *_, logsum, out), groups = saved, saved[1].shape[2]
    weights = scores_of(q, k, scale, mask is cudnn.MaskType.CAUSAL)
    weights = jnp.exp(weights - logsum.reshape(*weights.shape[:4], 1))
    of_q, of_out, d_out = (x.reshape(*x.shape[:2], groups, -1, x.shape[3]) for x in (q, out, d_out))
    dot = functools.partial(jnp.einsum, precision="highest")
    delta = jnp.moveaxis(jnp.sum(of_out * d_out, axis=-1), 1, 3)[..., None]
    d_scores = scale * weights * (dot("btgrk,bsgk->bgrts", d_out, v) - delta)
    d_q = dot("bgrts,bsgk->btgrk", d_scores, k).reshape(q.shape)
    d_k, d_v = (dot("bgrts,btgrk->bsgk", *x) for x in ((d_scores, of_q), (weights, d_out)))
    return d_q, d_k, d_v


def running_on(platform: str) -> ExitStack:
    stack, patch = ExitStack(), mock.patch.object
    interpreted = functools.partial(splash.make_splash_mha_single_device, interpret=True)
    for owner, name, stand_in in (
        (jax, "default_backend", lambda: platform),
        (kernels, "check_cudnn", lambda *_: None),  # which refuses float32
        (kernels, "check_splash", lambda *_: None),
        (kernels, "with_logsums", with_logsums),
        (cudnn, "_dot_product_attention_bwd_rule", gradients_of_cudnn),
        (splash, "make_splash_mha_single_device", interpreted),
    ):
        stack.enter_context(patch(owner, name, stand_in))
    part = patch(gathered, "gradients_of_part", wraps=gathered.gradients_of_part)
    stack.callback(stack.enter_context(part).assert_called)
    return stack


def losses(trained, fixed, tokens, options, mesh):
    model, encoding = trained[0], posenc_jax.combine(trained[1], fixed)
    nats, chosen = model.losses(
        tokens[:, :-1], tokens[:, 1:], encoding, **options, **devices.cutting(mesh)
    )
    return jnp.mean(nats), (nats, chosen)


def largest(one, other) -> float:
    """The largest difference, relative to the largest number."""
    size = np.max([jnp.max(jnp.abs(a)) for a in jax.tree.leaves(one)])
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return float(np.max([jnp.max(jnp.abs(a - b)) for a, b in pairs]) / size)  # NaN stays NaN


def compared(name: str, length: int, segments=None) -> dict[str, float]:
    name, _, platform = name.partition("@")
    scheme, options, extension = (VARIANTS | MORE).get(name, (name, {}, "none"))
    encoding = posenc_jax.build(scheme, DIMS, key=jax.random.key(3), **options)
    if encoding.reach is not None and encoding.reach < length:
        extension = "interpolate"
    encoding = posenc_jax.extend(extension, encoding, length / DIMS.train_length)
    model = models.Transformer(models.Config(**FIELDS), jax.random.key(0))
    tokens = np.random.default_rng(0).integers(0, VOCAB, (4, length + 1))
    trained, fixed = posenc_jax.partition(encoding)
    compute = jax.jit(jax.value_and_grad(losses, has_aux=True), static_argnums=4)
    inputs = (model, trained), fixed, jnp.asarray(tokens, jnp.int32), {"segments": segments}
    (_, (nats, chosen)), gradient = compute(*inputs, None)
    differences = {}
    for words, sequence in MESHES.items():
        mesh = devices.make_mesh(sequence=sequence)
        with running_on(platform) if platform else ExitStack():
            (_, (cut_nats, cut_chosen)), cut_gradient = compute(*inputs, mesh)
        assert (cut_chosen == chosen).mean() > 0.99
        differences[f"{words} losses"] = largest(nats, cut_nats)
        differences[f"{words} gradients"] = largest(gradient, cut_gradient)
    return differences


if __name__ == "__main__":
    length, names = int(sys.argv[1]), sys.argv[2:]
    # Documents that begin one, two and three tokens before a piece of 16.
    documents = jnp.asarray(np.arange(length) // 15)[None].repeat(4, axis=0)
    found = {name: compared(name, length) for name in names}
    packed = [name for name in names if name in PACKED]
    found |= {f"{name} in documents": compared(name, length, documents) for name in packed}
    print(json.dumps(found))
