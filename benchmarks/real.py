"""python -m benchmarks.real [--lengths=2048,8192,16384] [--rounds=3] [--out=DIR]

Compares a forward pass at the shape of SmolLM2-135M (30 layers, width 576, 9 heads, 3 key/value
heads, vocabulary 49,152) with that of transformers on CPU torch (attn_implementation="sdpa"), in
float32 and bfloat16, in turns. Both compute the logits of the last 128 tokens.
"""

import argparse
from pathlib import Path

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import jax  # noqa: E402
import numpy as np  # noqa: E402

import models  # noqa: E402
import posenc_jax  # noqa: E402
from benchmarks import peers  # noqa: E402
from benchmarks.results import Result, record  # noqa: E402
from benchmarks.timing import in_turns, machine, ratio, table  # noqa: E402

LAST = 128
BASE = 100_000.0
TYPES = ("float32", "bfloat16")
SHAPE = {
    "layers": 30,
    "width": 576,
    "heads": 9,
    "kv_heads": 3,
    "mlp_width": 1_536,
    "vocab": 49_152,
    "activation": "swiglu",
}


def ours(dtype: str, row: np.ndarray):
    config = models.Config(**SHAPE, dtype=dtype)
    model = jax.jit(lambda key: models.make(config, key))(jax.random.key(0))
    dims = posenc_jax.Dims(config.heads, config.head_size, config.width, 2_048, config.layers)
    encoding = posenc_jax.build("rope", dims, base=BASE)
    targets = row[:, -LAST:]
    run = jax.jit(lambda model, row: model.losses(row, targets, encoding)[0])
    return lambda: run(model, row).block_until_ready()


def llama(longest: int):
    """The shape in transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=SHAPE["width"],
        num_hidden_layers=SHAPE["layers"],
        num_attention_heads=SHAPE["heads"],
        num_key_value_heads=SHAPE["kv_heads"],
        intermediate_size=SHAPE["mlp_width"],
        vocab_size=SHAPE["vocab"],
        max_position_embeddings=longest,
        rope_theta=BASE,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval()


def theirs(dtype: str, row: np.ndarray):
    import torch

    model = llama(row.shape[1]).to(getattr(torch, dtype))
    given = torch.from_numpy(row).long()

    def call():
        with torch.inference_mode():
            model(given, use_cache=False, logits_to_keep=LAST)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lengths", default="2048,8192,16384")
    parser.add_argument("--rounds", type=int, default=3, help="of every length and type")
    parser.add_argument("--out", type=Path, help="the folder that keeps this machine's ratios")
    options = parser.parse_args()
    peers.install(peers.ROOT / ".venv-bench", peers.ROOT / "benchmarks" / "requirements.txt")
    print(f"{machine()}\nforward passes, one row\n")
    rows, results = [], []
    for length in map(int, options.lengths.split(",")):
        row = np.random.default_rng(0).integers(0, SHAPE["vocab"], (1, length), np.int32)
        calls = {f"ours {dtype}": ours(dtype, row) for dtype in TYPES}
        calls |= {f"torch {dtype}": theirs(dtype, row) for dtype in TYPES}
        times = in_turns(calls, 0, least=options.rounds)
        ranges = {f"{t} over torch": ratio(times, f"ours {t}", f"torch {t}") for t in TYPES}
        ranges["bfloat16 over float32"] = ratio(times, "ours bfloat16", "ours float32")
        ranges["torch bfloat16 over float32"] = ratio(times, "torch bfloat16", "torch float32")
        results += [Result(str(length), *pair) for pair in ranges.items()]
        speeds = [f"{length / np.median(times[name]):,.0f}" for name in calls]
        rows.append([f"{length:,}", *speeds, *ranges.values()])
        print(*rows[-1], flush=True)
    head = ["tokens", *(f"{name}, tokens/s" for name in calls), *ranges]
    print("\n" + table(head, rows))
    if options.out:
        print(f"\nwritten to {record('real', results, options.out)}")


if __name__ == "__main__":
    main()
