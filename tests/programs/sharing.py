"""python sharing.py CASES: training where all devices share the weights, beside one device.

Prints, for each case, the largest differences of loss and gradients, and the largest array that is
gathered, as a share of the largest weight of a layer, as JSON.
"""

import json
import re
import sys

import jax
import numpy as np
from cutting import largest
from sizes import config_of, rows

from posenc_jax.attention import target
from posenc_jax.config import trained
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import train_step

LENGTH = 128  # so that the tokens of a device are more than a weight
FIELDS = {"model.width": 64, "model.heads": 4, "model.layers": 4, "model.vocab": 48}


def computed(config, mesh):
    parts = parameters.make(config, mesh)
    params, batch = parts.params(), rows(8, LENGTH)
    for name, leaf in params["model"].items():
        if name.endswith("lora_up"):  # 0 at first, so that the other factor has no gradient
            params["model"][name] = leaf + 0.01
    own, kept = trained.split(params, config)

    def loss(own, kept, batch):
        params = trained.whole(own, kept, config)
        with target.compiling_for(mesh, cut=devices.cuts_weights(mesh, config.sharding)):
            return train_step.summed_loss(parts, params, batch, None, True)

    each = [devices.shardings(tree, mesh, config.sharding) for tree in (own, kept)]
    placed, out = (*each, devices.by_rows(mesh)), (None, each[0])
    program = jax.jit(jax.value_and_grad(loss), in_shardings=placed, out_shardings=out)
    compiled = program.lower(own, kept, batch).compile()
    shapes = re.findall(r"\w+\[([0-9,]*)\][^=]* all-gather(?:-start)?\(", compiled.as_text())
    sizes = [int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes]
    weights = (leaf.size / config.model.layers for leaf in jax.tree.leaves(params["model"]))
    return *jax.device_get(compiled(own, kept, batch)), max(sizes, default=0) / max(weights)


if __name__ == "__main__":
    found = {}
    for name, fields in json.loads(sys.argv[1]):
        config = config_of(name, sharding="fsdp", train_length=LENGTH, **FIELDS | fields)
        one = computed(config, devices.make_mesh(jax.devices()[:1]))
        many = computed(config, devices.make_mesh())
        differences = [largest(a, b) for a, b in zip(one[:2], many[:2], strict=True)]
        found[f"{name} {fields}"] = [*differences, many[2]]
    print(json.dumps(found))
