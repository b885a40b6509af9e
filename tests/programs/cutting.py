"""python cutting.py LENGTH NAME ...: losses and their gradients of rows over four devices.

Prints, for each encoding, the largest differences to those of one device as JSON.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from sizes import DIMS, VARIANTS, VOCAB

import models
import posenc_jax
from posenc_jax.runtime import devices

MESHES = {"2 x 2": 2, "1 x 4": 4}
PACKED = "rope", "fox", "relative", "selective_rope", "randomized", "yarn by query"
PACKED += ("stick_breaking with remainder",)
MORE = {"stick_breaking with remainder": ("stick_breaking", {"remainder": True}, "none")}
FIELDS = {"layers": 2, "width": DIMS.width, "heads": DIMS.heads, "vocab": VOCAB}


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
