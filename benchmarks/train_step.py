"""python -m benchmarks.train_step [--seconds=20] [--without=compiled] [--out=DIR]

Compares training steps of the default byte model (width 128, 4 layers, 4 heads) with x-transformers
on CPU torch (eager, flash and torch.compile) and a textbook decoder of flax.nnx, with the same
sizes, batch, clip and AdamW: speeds in turns, and their ratios.
"""

import argparse
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402

from benchmarks import peers  # noqa: E402
from benchmarks.results import Result, record  # noqa: E402
from benchmarks.timing import in_turns, machine, ratio, table  # noqa: E402
from posenc_jax.config import load  # noqa: E402
from posenc_jax.data.batches import Batch  # noqa: E402
from posenc_jax.runs import parameters  # noqa: E402
from posenc_jax.runtime import devices  # noqa: E402
from posenc_jax.training import train_step  # noqa: E402
from posenc_jax.training.optimizer import make  # noqa: E402

SIZES = ((128, 32), (512, 8))  # tokens per row, rows
HOWS = ("eager", "flash", "compiled", "flax")
POSITIONS = {  # of x-transformers, under our names
    "rope": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True},
    "t5": {"rel_pos_bias": True},
}


def tokens(length: int, rows: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, length + 1), np.int32)


def ours(name: str, length: int, rows: int, attention: str = "auto", **encoding):
    """A call that runs one step and waits for it, and bytes of temporary memory."""
    config = import_module(f"configs.{name}").get_config()
    config.encoding.update(encoding)
    config.update(train_length=length, batch_size=rows)
    config.model.update(vocab=256, attention=attention)
    if name == "randomized":
        config.encoding.max_position = 8 * length
    config = load(config)
    parts, optimizer = parameters.make(config), make(config)
    mesh = devices.make_mesh(jax.devices()[:1])
    step = train_step.train_step(parts, optimizer, config, mesh)
    state = jax.device_put(
        train_step.fresh_state(parts.params(), optimizer), devices.replicated(mesh)
    )
    held = SimpleNamespace(state=state)
    given = tokens(length, rows)
    ones = np.ones((rows, length), np.float32)
    batch = Batch(given[:, :-1], given[:, 1:], ones, np.zeros_like(given[:, 1:]), ones)
    program = step.lower(state, {}, batch).compile()

    def call():
        held.state, measured = program(held.state, {}, batch)
        return float(measured["loss"])

    return call, program.memory_analysis().temp_size_in_bytes


class Textbook(nnx.Module):
    """A decoder as the documents of flax.nnx write one, with learned positions."""

    def __init__(
        self,
        length: int,
        rngs: nnx.Rngs,
        width=128,
        layers=4,
        heads=4,
        vocab=256,
        dtype=jnp.float32,
        attention=nnx.dot_product_attention,
    ):
        def block():
            return nnx.Dict(
                norm=nnx.LayerNorm(width, **kind),
                attention=nnx.MultiHeadAttention(
                    heads, width, decode=False, attention_fn=attention, **kind
                ),
                mlp_norm=nnx.LayerNorm(width, **kind),
                up=nnx.Linear(width, 4 * width, **kind),
                down=nnx.Linear(4 * width, width, **kind),
            )

        kind = {"dtype": dtype, "rngs": rngs}
        self.tokens = nnx.Embed(vocab, width, **kind)
        self.positions = nnx.Embed(length, width, **kind)
        self.blocks = nnx.List([block() for _ in range(layers)])
        self.norm = nnx.LayerNorm(width, **kind)

    def __call__(self, tokens):
        x = self.tokens(tokens) + self.positions(jnp.arange(tokens.shape[1]))
        mask = nnx.make_causal_mask(tokens)
        for block in self.blocks:
            x = x + block.attention(block.norm(x), mask=mask)
            x = x + block.down(nnx.gelu(block.up(block.mlp_norm(x))))
        return self.tokens.attend(self.norm(x))


def textbook(length: int, rows: int):
    return textbook_step(Textbook(length, nnx.Rngs(0)), jnp.asarray(tokens(length, rows)))


def textbook_step(model: Textbook, given: jax.Array):  # [B, T + 1]
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-3, weight_decay=0.1))
    optimizer = nnx.Optimizer(model, chain, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, given):
        def loss(model):
            logits = model(given[:, :-1]).astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, given[:, 1:]).mean()

        value, gradients = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradients)
        return value

    return lambda: float(step(model, optimizer, given))


def x_transformer(name: str, length: int, flash: bool):
    """The default byte model of x-transformers."""
    import torch
    from x_transformers import Decoder, TransformerWrapper

    torch.manual_seed(0)
    return TransformerWrapper(
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
            attn_flash=flash and name != "t5",  # x-transformers refuses it with this bias
            **POSITIONS[name],
        ),
    )


def theirs(name: str, length: int, rows: int, how: str):
    import torch

    model = x_transformer(name, length, flash=how in ("flash", "compiled"))
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20, help="per encoding and length")
    parser.add_argument("--without", default="", help="peers to leave out, such as eager,compiled")
    parser.add_argument("--out", type=Path, help="the folder that keeps this machine's ratios")
    options = parser.parse_args()
    peers.install(peers.ROOT / ".venv-bench", peers.ROOT / "benchmarks" / "requirements.txt")
    hows = [how for how in HOWS if how not in options.without.split(",")]
    print(f"{machine()}\nfloat32; tokens per second\n")
    rows, results = [], []
    for length, size in SIZES:
        for name in POSITIONS:
            calls = {"ours": ours(name, length, size)[0]}
            for how in hows:
                if how == "flax":
                    calls[how] = textbook(length, size)
                else:
                    calls[how] = theirs(name, length, size, how)
            times = in_turns(calls, options.seconds)
            speeds = {name: length * size / np.median(taken) for name, taken in times.items()}
            case, over = f"{length} x {size}", [ratio(times, "ours", how) for how in hows]
            results += [
                Result(f"{case} {name}", f"over {how}", one)
                for how, one in zip(hows, over, strict=True)
            ]
            words = [f"{speed:,.0f}" for speed in speeds.values()]
            rows.append([case, name, *words, *over])
            print(*rows[-1], flush=True)
    head = ["tokens x rows", "encoding", "ours", *hows, *(f"over {how}" for how in hows)]
    print("\n" + table(head, rows))
    if options.out and not options.without:
        print(f"\nwritten to {record('train_step', results, options.out)}")


if __name__ == "__main__":
    main()
