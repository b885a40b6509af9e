"""Model FLOPs utilisation (MFU) of training."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from sizes import config_of

from posenc_jax.runs import parameters
from posenc_jax.runs.workdir import Workdir
from posenc_jax.training.console import Report

MEASURED = {"loss": 1.0, "bpb": 1.0, "grad_norm": 1.0}


@pytest.fixture(scope="module")
def run():
    config = config_of("rope", **{"model.layers": 1})
    return config, parameters.make(config)


@pytest.fixture
def logged(run, monkeypatch):
    """Return the log line of a step on given devices, and the FLOPs per token."""
    config, parts = run

    def make(kind, devices=1):
        named = [SimpleNamespace(device_kind=kind, memory_stats=lambda: None)] * devices
        monkeypatch.setattr(jax, "devices", lambda: named)
        report = Report(Workdir("", writes=False), config, parts, 0, {})
        return report.step(1, MEASURED, 0.1), parts.model.flops_per_token(config.train_length)

    return make


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("TPU v5 lite", 197e12),  # v5e
        ("TPU v5", 459e12),  # v5p
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A10G", 70e12),
    ],
)
def test_mfu_uses_the_peak_of_the_exact_device(kind, peak, logged):
    for devices in (1, 4):
        line, flops = logged(kind, devices)
        reached = line["tokens_per_second"] * flops
        np.testing.assert_allclose(line["mfu"], reached / (peak * devices), rtol=1e-6)


@pytest.mark.parametrize(
    "kind", ["cpu", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H1000", "TPU"]
)
def test_unknown_devices_have_no_mfu(kind, logged):
    assert logged(kind)[0]["mfu"] is None
