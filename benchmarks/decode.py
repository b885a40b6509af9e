"""python -m benchmarks.decode [--parts=real,small,encodings] [--only=pope,alibi] [--out=DIR]

Measures greedy decoding of one row with a cache, in float32: the time per token after a prompt, and
the time to the first token.

real: the shape of SmolLM2-135M against `generate` of transformers (attn_implementation="sdpa").
small: the default byte model (width 128, 4 layers, 4 heads) against x-transformers.
encodings: the default byte model with every encoding (of those whose names contain a word of
`--only`), and extensions of RoPE that change decoding, in turns with RoPE; also bytes of cache per
token. `mla` is RoPE in a model whose keys and values come from a latent, as in configs/mla.py.

A case replaces its own rows. A prompt of 16,384 tokens takes minutes at SmolLM2's shape.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)

import jax  # noqa: E402
import numpy as np  # noqa: E402

import models  # noqa: E402
import posenc_jax  # noqa: E402
from benchmarks import peers  # noqa: E402
from benchmarks.real import BASE, SHAPE, llama  # noqa: E402
from benchmarks.results import Result, record  # noqa: E402
from benchmarks.timing import QUARTILES, Range, machine, ratio  # noqa: E402
from benchmarks.train_step import POSITIONS, x_transformer  # noqa: E402
from models.cache import rotates_once  # noqa: E402
from posenc_jax import schemes  # noqa: E402

NEW = 32  # tokens whose time is taken
PROMPTS = {"real": (512, 4_096, 16_384), "small": (512, 4_096)}
CONTEXTS = (1_024, 4_096, 16_384)
LONG = 16_384  # prompts from here on have two rounds, shorter ones four
TRAIN_LENGTH = 512  # L of the encodings, and the window of extensions that have one
WHOLE = ("learned", "randomized")  # built for the whole context: their positions end at a table
VARIANTS = {  # name -> encoding and its options
    "rope, imaginary": ("rope", {"imaginary": True}),
    "hybrid, three of four decay": ("hybrid", {"pattern": "decay,decay,decay,global"}),
}
EXTENSIONS = ("yarn", "self_extend", "dca", "streaming", "window")
SMALL = models.Config(vocab=256)
LATENT = dataclasses.replace(SMALL, head_dim=48, value_dim=32, latent_dim=128, rotary_dim=16)


class Seconds(NamedTuple):
    first: float  # from the call to the first token
    each: float  # per later token


Decode = Callable[[], Seconds]


def ours(model, encoding, row: np.ndarray) -> Decode:
    def call():
        begin, stamps = time.perf_counter(), []
        for piece in models.stream(model, encoding, row, tokens=1 + 2 * NEW, each=1 + NEW):
            piece.block_until_ready()
            stamps.append(time.perf_counter())
        # The first piece is the first token and as many later ones as the second piece.
        each = (stamps[1] - stamps[0]) / NEW
        return Seconds(stamps[0] - begin - NEW * each, each)

    return call


def of_stamps(begin: float, stamps: list[float]) -> Seconds:
    """The times of a generation, from the time of each of its tokens."""
    return Seconds(stamps[0] - begin, (stamps[-1] - stamps[0]) / (len(stamps) - 1))


def transformers(length: int, row: np.ndarray) -> Decode:
    import torch

    model, given = llama(length + 1 + NEW), torch.from_numpy(row).long()
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}

    class Stamps(list):
        def put(self, _):
            self.append(time.perf_counter())

        def end(self):
            pass

    def call():
        begin, stamps = time.perf_counter(), Stamps()
        with torch.inference_mode():
            model.generate(given, max_new_tokens=1 + NEW, streamer=stamps, **options)
        return of_stamps(begin, stamps[1:])  # it puts the prompt first

    return call


def x_transformers(name: str, row: np.ndarray, flash: bool) -> Decode:
    import torch
    from x_transformers import AutoregressiveWrapper

    model = AutoregressiveWrapper(x_transformer(name, row.shape[1] + 1 + NEW, flash)).eval()
    given, stamps = torch.from_numpy(row).long(), []
    model.net.register_forward_hook(lambda *_: stamps.append(time.perf_counter()))

    def call():
        stamps.clear()
        begin = time.perf_counter()
        with torch.inference_mode():
            model.generate(given, 1 + NEW, temperature=0.0, cache_kv=True)
        return of_stamps(begin, stamps)

    return call


def in_turns(calls: Mapping[str, Decode], length: int) -> dict[str, np.ndarray]:
    """Seconds [rounds, 2] of each call, in turns; the first round compiles."""
    rounds = range(2 if length >= LONG else 4)
    taken = [[call() for call in calls.values()] for _ in rounds]
    return dict(zip(calls, np.array(taken).swapaxes(0, 1), strict=True))


def against(case: str, times: dict[str, np.ndarray]) -> list[Result]:
    """Our times over each peer's."""
    results = []
    firsts = {name: one[1:, 0] for name, one in times.items()}
    each = {name: one[:, 1] for name, one in times.items()}
    for peer in [name for name in times if name != "ours"]:
        results.append(Result(case, f"time per token over {peer}", ratio(each, peer, "ours")))
        results.append(Result(case, f"first token over {peer}", ratio(firsts, peer, "ours")))
    for name, seconds in each.items():
        results.append(Result(case, f"{name}, ms per token", quartiles(1e3 * seconds)))
    return results


def quartiles(values: np.ndarray) -> Range:
    return Range(*np.percentile(values, QUARTILES))


def tokens(vocab: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, vocab, (1, length), np.int32)


def dims_of(config: models.Config, train_length: int) -> posenc_jax.Dims:
    heads, size, width = config.heads, config.head_size, config.width
    return posenc_jax.Dims(heads, size, width, train_length, config.layers, config.rotary_dim)


def made(config: models.Config):
    return jax.jit(lambda key: models.make(config, key))(jax.random.key(0))


def real() -> Iterator[list[Result]]:
    config = models.Config(**SHAPE)
    model = made(config)
    rope = posenc_jax.build("rope", dims_of(config, 2_048), base=BASE)
    for length in PROMPTS["real"]:
        row = tokens(SHAPE["vocab"], length)
        calls = {"ours": ours(model, rope, row), "transformers": transformers(length, row)}
        yield against(f"{length} rope", in_turns(calls, length))


def small() -> Iterator[list[Result]]:
    model = made(SMALL)
    for length in PROMPTS["small"]:
        row = tokens(256, length)
        for name in POSITIONS:
            calls = {
                "ours": ours(model, encoding_of(name, length), row),
                "eager": x_transformers(name, row, flash=False),
            }
            if name != "t5":  # x-transformers refuses flash with this bias
                calls["flash"] = x_transformers(name, row, flash=True)
            yield against(f"{length} {name}", in_turns(calls, length))


def config_of(name: str) -> models.Config:
    return LATENT if name == "mla" else SMALL


def encoding_of(name: str, context: int) -> posenc_jax.Encoding:
    """An encoding, or RoPE with an extension, as it reads `context` tokens and decodes."""
    scheme, _, extension = name.partition(" + ")
    most = context + 2 * NEW
    dims = dims_of(config_of(name), most if scheme in WHOLE else TRAIN_LENGTH)
    scheme, options = VARIANTS.get(scheme, ("rope" if scheme == "mla" else scheme, {}))
    encoding = schemes.build(scheme, dims, jax.random.key(1), **options)
    if not extension:
        return encoding
    return posenc_jax.extend(extension, encoding, most / TRAIN_LENGTH)


def cache_bytes(name: str, size: int) -> int:
    config, encoding = config_of(name), encoding_of(name, size)
    rotated = rotates_once(config, encoding)  # as `models.generate` holds them
    cache = models.init_cache(config, encoding, 1, size, rotated=rotated)
    return sum(leaf.nbytes for leaf in jax.tree.leaves(cache.layers))


def encodings(only: str) -> Iterator[list[Result]]:
    small, latent = made(SMALL), made(LATENT)
    names = [*schemes.names(), *VARIANTS, *(f"rope + {name}" for name in EXTENSIONS), "mla"]
    for context in CONTEXTS:
        row = tokens(256, context)
        rope = ours(small, encoding_of("rope", context), row)
        for name in [name for name in names if any(word in name for word in only.split(","))]:
            model = latent if name == "mla" else small
            call = ours(model, encoding_of(name, context), row)
            times = in_turns({"rope": rope, "ours": call}, context)
            held = cache_bytes(name, context) / context
            own = times["ours"]
            each = {name: one[:, 1] for name, one in times.items()}
            measured = {
                "time per token over rope": ratio(each, "rope", "ours"),
                "tokens per second": quartiles(1 / own[:, 1]),
                "ms to the first token": quartiles(1e3 * own[1:, 0]),
                "bytes of cache per token": Range(held, held, held),
            }
            yield [Result(f"{context} {name}", *one) for one in measured.items()]


PARTS = ("real", "small", "encodings")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--only", default="", help="encodings whose names contain one of these")
    parser.add_argument("--out", type=Path, help="the folder that keeps ratios")
    options = parser.parse_args()
    peers.install(peers.ROOT / ".venv-bench", peers.ROOT / "benchmarks" / "requirements.txt")
    print(machine(), flush=True)
    made = {"real": real, "small": small, "encodings": lambda: encodings(options.only)}
    for part in options.parts.split(","):
        results = []
        for of_case in made[part]():
            words = [f"{one.measure} {one.range.middle:,.4g}" for one in of_case]
            print(f"{of_case[0].case}: {'; '.join(words)}", flush=True)
            results += of_case
            if options.out:
                record(f"decode_{part}", results, options.out)


if __name__ == "__main__":
    main()
