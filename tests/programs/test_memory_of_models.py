"""The memory of adopting a pretrained model, and of loading the run, over its size."""

import sys

import ml_dtypes
import pytest
from llamas import LLAMA, drawn, write
from running import python

SIZES = {  # 300 MB in bfloat16
    "vocab_size": 32_000,
    "hidden_size": 768,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 2048,
}
PEAK = """
import sys
from posenc_jax import backend
backend.configure()
import jax
from posenc_jax.pretrained.adopt import adopt
from posenc_jax.runs.subject import load_run

def peak():
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

jax.numpy.zeros(1)
before, (what, *places) = peak(), sys.argv[1:]
{"adopt": adopt, "load": load_run}[what](*places)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_adopting_holds_each_array_once_and_loading_less_than_twice(tmp_path):
    arrays = drawn(ml_dtypes.bfloat16, LLAMA | SIZES)
    size = sum(array.nbytes for array in arrays.values())
    folder, run = write(tmp_path / "llama", arrays, LLAMA | SIZES), tmp_path / "run"
    del arrays
    adopting = int(python("-c", PEAK, "adopt", folder, run)) / size
    loading = int(python("-c", PEAK, "load", run)) / size
    print(f"{size:,} bytes; adopting adds {adopting:.2f} of them, loading {loading:.2f}")
    assert adopting <= 1.3 and loading <= 1.9
