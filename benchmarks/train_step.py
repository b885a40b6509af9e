"""python -m benchmarks.train_step [--seconds=20] [--without=compiled]

Training steps of the default byte model (width 128, 4 layers, 4 heads) against x-transformers on
CPU torch: eager, flash and torch.compile, with the same sizes, batch, clip and AdamW. Speeds in
turns, their ratios, and the share of the machine's own measured rate of matrix products.
"""

import argparse
import contextlib
import time
from importlib import import_module
from types import SimpleNamespace

from posenc_jax import backend

backend.configure(keep_programs=False)

import jax  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks import peers  # noqa: E402
from benchmarks.timing import in_turns, machine, ratio, table  # noqa: E402
from posenc_jax.data.batches import Batch  # noqa: E402
from posenc_jax.training import optimizer as optimizers  # noqa: E402
from posenc_jax.training import parts as making  # noqa: E402
from posenc_jax.training import report  # noqa: E402
from posenc_jax.training import step as steps  # noqa: E402

SIZES = ((128, 32), (512, 8))  # tokens per row, rows
POSITIONS = {  # of x-transformers, under our names
    "rope": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True},
    "t5": {"rel_pos_bias": True},
}


def tokens(length: int, rows: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, length + 1), np.int32)


def ours(name: str, length: int, rows: int):
    """A call that makes one step and waits for it; FLOPs of a token."""
    config = import_module(f"configs.{name}").get_config()
    config.update(train_length=length, batch_size=rows)
    config.model.vocab = 256
    parts, optimizer = making.make(config), optimizers.make(config)
    mesh = steps.make_mesh(jax.devices()[:1])
    step = steps.train_step(parts, optimizer, config, mesh)
    held = SimpleNamespace(state=steps.fresh_state(parts, optimizer))
    given = tokens(length, rows)
    ones = np.ones((rows, length), np.float32)
    batch = Batch(given[:, :-1], given[:, 1:], ones, np.zeros_like(given[:, 1:]), ones)

    def call():
        held.state, measured = step(held.state, batch)
        return float(measured["loss"])

    return call, report.flops_per_token(config, parts)


def theirs(name: str, length: int, rows: int, how: str):
    import torch
    from x_transformers import Decoder, TransformerWrapper

    torch.manual_seed(0)
    flash = how in ("flash", "compiled")
    model = TransformerWrapper(
        num_tokens=256,
        max_seq_len=length,
        use_abs_pos_emb=False,
        tie_embedding=True,
        attn_layers=Decoder(
            dim=128,
            depth=4,
            heads=4,
            attn_dim_head=32,
            use_rmsnorm=True,
            ff_no_bias=True,
            attn_flash=flash and name != "t5",  # which refuses it with this bias
            **POSITIONS[name],
        ),
    )
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=3e-3, weight_decay=0.1)
    run = torch.compile(model) if how == "compiled" else model
    given = torch.from_numpy(tokens(length, rows)).long()

    def call():
        logits = run(given[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), given[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return loss.item()

    return call


def product_rate() -> float:
    """FLOP/s of a large float32 product, the best of many: what the machine can do."""
    a = jax.random.normal(jax.random.key(0), (2048, 2048))
    run = jax.jit(lambda a: a @ a)
    run(a).block_until_ready()
    taken = []
    for _ in range(20):
        begin = time.perf_counter()
        run(a).block_until_ready()
        taken.append(time.perf_counter() - begin)
    return 2 * 2048**3 / min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20, help="per encoding and length")
    parser.add_argument("--without", default="", help="peers to leave out, such as eager,compiled")
    options = parser.parse_args()
    peers.install(peers.ROOT / ".venv-bench", peers.ROOT / "benchmarks" / "requirements.txt")
    hows = [how for how in ("eager", "flash", "compiled") if how not in options.without.split(",")]
    rate = product_rate()
    print(f"{machine()}; products {rate / 1e9:,.0f} GFLOP/s\nfloat32; tokens per second\n")
    rows = []
    for length, size in SIZES:
        for name in POSITIONS:
            call, flops = ours(name, length, size)
            calls = {"ours": call}
            for how in hows:
                with contextlib.suppress(ImportError):
                    calls[how] = theirs(name, length, size, how)
            times = in_turns(calls, options.seconds)
            speeds = {who: length * size / np.median(taken) for who, taken in times.items()}
            rows.append(
                [
                    f"{length} x {size}",
                    name,
                    *(f"{speed:,.0f}" for speed in speeds.values()),
                    *(ratio(times, "ours", how) for how in hows),
                    f"{speeds['ours'] * flops / rate:.0%}",
                ]
            )
            print(" ".join(rows[-1]), flush=True)
    head = ["tokens x rows", "encoding", "ours", *hows, *(f"over {how}" for how in hows)]
    print("\n" + table([*head, "of the products' rate"], rows))


if __name__ == "__main__":
    main()
