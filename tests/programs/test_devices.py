"""Training and evaluation on several devices of one process."""

import csv
import json
import shutil

import numpy as np
import pytest
from running import python


@pytest.mark.slow
def test_many_devices_give_the_losses_of_one():
    """Eight forced CPU devices, 20 steps."""
    code = """
import sys, json
sys.path[:0] = ['tests', '.']
from posenc_jax import backend
backend.configure()
import jax
from importlib import import_module
from configured import run_of
from training_rows import rows
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import adamw, compiled
def losses(count, sharding='replicated', attention='plain'):
    config = import_module('configs.alibi').get_config()
    config.sharding, config.model.attention = sharding, attention
    config.model.update(width=16, heads=2, layers=2, vocab=31)
    config.update(train_length=8, batch_size=8, steps=20, warmup_steps=2)
    config = run_of(config)
    mesh = devices.make_mesh(jax.devices()[:count])
    parts, optimizer = parameters.make(config), adamw.make(config)
    state = compiled.fresh_state(parts, optimizer)
    state = jax.device_put(state, devices.shardings(state, mesh, sharding))
    step = compiled.train_step(parts, optimizer, config, mesh)
    out = []
    for i in range(20):
        state, measured = step(state, rows(batch=8, seed=i))
        out.append(float(measured['loss']))
    kernel = state['params']['model']['blocks.mlp.up.kernel']
    assert kernel.sharding.is_fully_replicated == (sharding == 'replicated' or count == 1)
    if sharding == 'fsdp':
        assert kernel.addressable_shards[0].data.size * count == kernel.size
        moments = [x for x in jax.tree.leaves(state['opt']) if x.shape == kernel.shape]
        assert len(moments) == 2 and all(x.sharding == kernel.sharding for x in moments)
    return out
assert len(jax.devices()) == 8
print(json.dumps([losses(1), losses(8), losses(8, 'fsdp', 'blockwise')]))
"""
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    out = python("-c", code, env={"XLA_FLAGS": flags})
    one, eight, cut = json.loads(out.splitlines()[-1])
    np.testing.assert_allclose(eight, one, atol=1e-5)
    np.testing.assert_allclose(cut, one, atol=1e-5)
    assert one[0] != one[-1]


@pytest.mark.slow
def test_an_evaluation_on_four_devices_equals_one(whole, tmp_path):
    """Without a bias, with a curve, with regions and with a window."""
    words = ["--config.multiples=0.5,1,2", "--config.extensions=none,yarn,self_extend"]
    words += ["--config.protocols=same_token,nonoverlap,position", "--config.documents=3"]
    curves = []
    for devices in (1, 4):
        workdir = tmp_path / str(devices)
        shutil.copytree(whole[0], workdir)
        flags = f"--xla_force_host_platform_device_count={devices}"
        command = ["eval_extrapolation.py", f"--workdir={workdir}", *words]
        python(*command, env={"XLA_FLAGS": flags})
        with (workdir / "eval" / "curves.csv").open() as stream:
            curves.append(list(csv.DictReader(stream)))
    assert len(curves[0]) == len(curves[1]) > 20
    for one, four in zip(*curves, strict=True):
        assert (one["method"], one["token_hash"]) == (four["method"], four["token_hash"])
        np.testing.assert_allclose(float(four["nll"]), float(one["nll"]), rtol=1e-6)
