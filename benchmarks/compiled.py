"""python -m benchmarks.compiled gpu|tpu|cpu [RECIPE ...] [--size=125m] [--rows=32] [--layers=N]
    [--devices=1] [--length=N] [--extension=none] [--remat] [--sharding=fsdp] [--top=0] [--out=FILE]

Compiles training steps for an H100 or a TPU v5e that need not be there, or with --length the losses
of a row of N tokens a device, and says what XLA made of them: launches, bytes that kernels read and
write, temporary memory and all of it, fused kernels of attention, collectives and the bytes that
they bring, and the time of a roofline (600 TFLOP/s in products, 300 in attention, 3 TB/s, 2 us a
launch: a first-order model of an H100, not a measurement). A gpu needs jax's CUDA plugin with
NVIDIA's libraries, the extra `cuda`; a tpu needs libtpu, the extra `tpu`. --top lists the kernels
that take longest, --out writes the program.
"""

import argparse
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # else a lock file admits one process

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import Mesh

import posenc_jax
from posenc_jax import composition
from posenc_jax.config import load, trained
from posenc_jax.data.batches import Batch
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation.losses import losses_of
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.runtime.trees import by_path, with_leaves
from posenc_jax.training import train_step
from posenc_jax.training.optimizer import make

VOCAB = {"tiny": 256, "small": 256, "base": 4_096, "125m": 50_304, "1b": 50_304, "8b": 128_256}
# Llama 3's shape, which is adopted and has no preset; its matrices are bfloat16 in an evaluation.
EIGHT = dict(layers=32, width=4_096, heads=32, kv_heads=8, mlp_width=14_336, tied=False)
EIGHT |= dict(activation="swiglu")
GPU = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84929347584
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 12 }
runtime_version { major: 13 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""

PRODUCTS, ATTENTION, BANDWIDTH, LAUNCH = 600e12, 300e12, 3.0e12, 2e-6
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
BYTES = dict(f64=8, s64=8, u64=8, f32=4, s32=4, u32=4, bf16=2, f16=2, s16=2, u16=2, s8=1, u8=1)
BYTES["pred"] = 1
FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "conditional"}
FREE |= {"after-all", "iota", "partition-id", "copy-done", "async-done"}
SHAPE = re.compile(rf"\b({'|'.join(BYTES)})\[([\d,]*)\]")
LINE = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\((.*)$")


def mesh_for(platform: str, count: int = 1, sequence: int = 1) -> Mesh:
    """A mesh of devices that need not be there; to be made before anything else with jax.

    Kept programs are not used: those for an absent device cannot be read back.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    _pretend_a_gpu()
    if platform == "cpu":
        return devices.make_mesh(jax.devices()[:count], sequence)
    if platform == "tpu":
        side = 2 if count <= 4 else 4
        described = topologies.get_topology_desc(f"v5e:{side}x{side}", platform="tpu")
    else:
        described = topologies.get_topology_desc(
            platform="cuda", target_config=GPU, topology=f"1x1x{count}"
        )
    return devices.make_mesh(described.devices[:count], sequence)


def _pretend_a_gpu() -> None:
    """jax asks the device for its plugin's name and for cuDNN's version; without one it cannot."""
    from jax._src import xla_bridge  # noqa: TID251
    from jax._src.cudnn import fused_attention_stablehlo as cudnn  # noqa: TID251

    real = xla_bridge.canonicalize_platform
    replaced: Any = xla_bridge
    replaced.canonicalize_platform = lambda p: "cuda" if p in ("gpu", "cuda") else real(p)
    replaced = cudnn
    replaced.check_cudnn_version = lambda: 91_200
    replaced.check_compute_capability = lambda capability: True
    replaced.is_cuda_compute_capability_equal = lambda capability: False


def recipe(
    name: str,
    size: str,
    rows: int,
    layers: int | None = None,
    remat: bool = False,
    sharding: str | None = None,
    lora: int | None = None,
) -> Any:
    made = import_module(f"configs.{name}").get_config("1b" if size == "8b" else size)
    made.model.update(EIGHT if size == "8b" else {})
    made.model.update(vocab=VOCAB[size], dtype="bfloat16", remat=remat, lora=lora)
    if layers:
        made.model.layers = layers
    made.update(batch_size=rows, accumulate=1, sharding=sharding or made.sharding)
    return load(made)


def step(config: Any, mesh: Mesh) -> Any:
    """The compiled training step of a configuration."""
    parts, optimizer = parameters.blank(config), make(config)
    own, frozen = jax.eval_shape(lambda p: trained.split(p, config), parts.params())
    state = jax.eval_shape(lambda: train_step.fresh_state(own, optimizer))
    types = types_of_an_adopted(config)
    frozen = {n: jax.ShapeDtypeStruct(leaf.shape, types[n]) for n, leaf in frozen.items()}
    shape = config.batch_size, config.train_length
    ints, floats = (jax.ShapeDtypeStruct(shape, kind) for kind in (jnp.int32, jnp.float32))
    batch = Batch(ints, ints, floats, ints, floats)
    stepped = train_step.train_step(parts, optimizer, config, mesh)
    return _compiled(stepped.trace(state, frozen, batch), mesh)


def losses(config: Any, mesh: Mesh, length: int, extension: str) -> Any:
    """The compiled losses of a row of each device under an extension, as an evaluation reads it."""
    model, every = weights(config, mesh), devices.replicated(mesh)
    encoding = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=every),
        extended(config, length, extension),
    )
    shape = mesh.shape[devices.DATA], length + 1
    rows = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=devices.by_rows(mesh))
    cut = devices.cuts_weights(mesh, config.sharding)
    traced = losses_of.trace(model, encoding, rows, length // 4, mesh, cut)
    return _compiled(traced, mesh)


def weights(config: Any, mesh: Mesh) -> Any:
    """Shapes of a model in an evaluation; the matrices of an adopted one are bfloat16."""
    model = parameters.blank(config).model
    types = with_leaves(model, types_of_an_adopted(config))

    def placed(x, kind, of):
        return jax.ShapeDtypeStruct(x.shape, kind, sharding=of)

    return jax.tree.map(placed, model, types, devices.shardings(model, mesh, config.sharding))


def types_of_an_adopted(config: Any) -> dict[str, Any]:
    """The types in which the arrays of a model are held; the matrices of an adopted one, which
    states the width of its MLP, are bfloat16."""
    shapes = by_path(parameters.blank(config).model)
    held = jnp.dtype(jnp.bfloat16 if config.model.mlp_width else jnp.float32)
    return {name: held if x.ndim > 1 else x.dtype for name, x in shapes.items()}


def extended(config: Any, length: int, extension: str) -> Encoding:
    (part,) = composition.parts(extension)
    encoding, scale = parameters.blank(config).encoding, length / config.train_length
    return posenc_jax.extend(part.name, encoding, scale, **part.options)


def _compiled(traced: Any, mesh: Mesh) -> Any:
    platform = mesh.devices.flat[0].platform
    return traced.lower(lowering_platforms=({"gpu": "cuda"}.get(platform, platform),)).compile()


@dataclass
class Instruction:
    shape: list[tuple[str, list[int]]]
    op: str
    operands: list[str]
    rest: str  # what follows the operands
    root: bool

    @property
    def size(self) -> int:
        return sum(BYTES[kind] * prod(sizes) for kind, sizes in self.shape)

    def called(self, word: str) -> str:
        found = re.search(rf"{word}=%?([\w.\-]+)", self.rest)
        return found.group(1) if found else ""


Computation = dict[str, Instruction]


class Kernel(NamedTuple):
    """A kernel of a program, for all its launches in a step."""

    name: str
    kind: str  # product, attention, other
    launches: int
    bytes: int
    flops: float

    @property
    def seconds(self) -> float:
        rate = ATTENTION if self.kind == "attention" else PRODUCTS
        return max(self.flops / rate, self.bytes / BANDWIDTH) + self.launches * LAUNCH


class Facts(NamedTuple):
    """What XLA made of a program."""

    launches: int
    gigabytes: float  # read and written by kernels
    temporary: int  # bytes
    held: int  # bytes in all, arguments too
    attention: int  # fused kernels of attention in the text
    collectives: dict[str, int]
    received: float  # GB that they bring to a device
    seconds: float  # of the roofline


def facts(compiled: Any) -> Facts:
    text = compiled.as_text()
    every = list(kernels(text))
    memory = compiled.memory_analysis()
    counts = {name: len(re.findall(rf" {name}(?:-start)?\(", text)) for name in COLLECTIVES}
    return Facts(
        sum(kernel.launches for kernel in every),
        sum(kernel.bytes for kernel in every) / 1e9,
        memory.temp_size_in_bytes,
        memory.temp_size_in_bytes + memory.argument_size_in_bytes,
        len(re.findall(r'custom_call_target="(?:__cudnn\$fmha\w*|tpu_custom_call)"', text)),
        {name: count for name, count in counts.items() if count},
        received(text) / 1e9,
        sum(kernel.seconds for kernel in every),
    )


def kernels(text: str) -> Iterator[Kernel]:
    """The kernels of an optimized program, with the trip counts of the loops around them."""
    computations, entry = parse(text)
    for name, one, computation, times in _launched(computations, entry):
        yield _kernel(name, one, computation, computations, times)


def received(text: str) -> float:
    """Bytes that the collectives of a program bring to a device, as rings do it."""
    total = 0
    for _, one, computation, times in _launched(*parse(text)):
        op = one.op.removesuffix("-start")
        if op in COLLECTIVES:
            read = sum(computation[name].size for name in one.operands)
            begun = one.op.endswith("-start") and op != "all-reduce"
            made = one.size - read if begun else one.size  # what is begun has what it reads too
            rings = {"all-gather": made - read, "reduce-scatter": read - made}
            total += times * (rings | {"all-reduce": 2 * made}).get(op, made)
    return total


def _launched(
    computations: dict[str, Computation], entry: str
) -> Iterator[tuple[str, Instruction, Computation, int]]:
    """Instructions that run, each with its name, its computation and its number of times."""

    def walk(name: str, times: int) -> Iterator[tuple[str, Instruction, Computation, int]]:
        computation = computations[name]
        for own, one in computation.items():
            if one.op == "while":
                trips = re.search(r'known_trip_count":\{"n":"(\d+)"', one.rest)
                yield from walk(one.called("body"), times * int(trips.group(1) if trips else 1))
            elif one.op == "call":
                yield from walk(one.called("to_apply"), times)
            elif one.op not in FREE:
                yield own, one, computation, times

    return walk(entry, 1)


def parse(text: str) -> tuple[dict[str, Computation], str]:
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for line in text.splitlines():
        if line.endswith("{") and "->" in line and not line.startswith(" "):
            name = re.sub(r"^(ENTRY )?%?([\w.\-]+).*", r"\2", line)
            current = computations.setdefault(name, {})
            entry = name if line.startswith("ENTRY") else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := LINE.match(line)):
            root, name, shape, op, rest = found.groups()
            depth, end = 1, 0
            while depth:
                depth += (rest[end] == "(") - (rest[end] == ")")
                end += 1
            shapes = SHAPE.findall(re.sub(r"/\*.*?\*/", "", shape))
            sizes = [(kind, [int(n) for n in text.split(",") if n]) for kind, text in shapes]
            operands = re.findall(r"%([\w.\-]+)", rest[:end])
            current[name] = Instruction(sizes, op, operands, rest[end:], bool(root))
    return computations, entry


def _kernel(name: str, one: Instruction, computation, computations, times: int) -> Kernel:
    fused = computations.get(one.called("calls")) if one.op == "fusion" else None
    kind, flops = "other", 0.0
    if fused is not None:
        moved = _moved(fused)
        flops = float(sum(_product(each, fused) for each in fused.values() if each.op == "dot"))
        kind = "product" if flops else "other"
    else:
        read = sum(computation[o].size for o in one.operands if o in computation)
        moved = read + one.size
        if "fmha" in one.rest:
            batch, length, heads, size = computation[one.operands[0]].shape[0][1]
            products = 5 if "Backward" in one.rest else 2
            kind, flops = "attention", products * batch * heads * length**2 * size
        elif "gemm" in one.rest or "cublas" in one.rest:
            kind, flops = "product", _gemm(one, computation)
    return Kernel(name, kind, times, times * moved, times * flops)


def _product(dot: Instruction, computation: Computation) -> float:
    left = computation[dot.operands[0]].shape[0][1]
    over = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", dot.rest)
    summed = prod(left[int(axis)] for axis in over.group(1).split(",")) if over else 1
    return 2.0 * prod(dot.shape[0][1]) * summed


def _gemm(call: Instruction, computation: Computation) -> float:
    """FLOPs of cuBLAS: 2 sqrt(M K x K N x M N)."""
    sizes = [prod(computation[name].shape[0][1]) for name in call.operands[:2]]
    return 2.0 * (prod(sizes) * prod(call.shape[0][1])) ** 0.5


def _moved(fused: Computation) -> int:
    """Bytes that a fusion reads and writes; of a sliced array, those of the slice."""
    users: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, one in fused.items():
        for place, operand in enumerate(one.operands):
            users[operand].append((name, place))

    def read(name: str) -> int:
        whole, total = fused[name].size, 0
        for user, place in users[name]:
            one = fused[user]
            if one.op in ("dynamic-slice", "slice", "gather") and not place:
                total += one.size
            elif one.op in ("bitcast", "reshape", "copy", "convert", "transpose") and not one.root:
                total += read(user)
            elif one.op != "dynamic-update-slice" or place:
                return whole
        return min(total, whole)

    def written(one: Instruction) -> int:
        inner = one
        while inner.op in ("bitcast", "convert") and inner.operands:
            inner = fused[inner.operands[0]]
        sliced = inner.op == "dynamic-update-slice"
        return fused[inner.operands[1]].size if sliced else one.size

    root = next(one for one in fused.values() if one.root)
    outputs = [fused[name] for name in root.operands] if root.op == "tuple" else [root]
    reads = sum(read(name) for name, one in fused.items() if one.op == "parameter")
    return reads + sum(map(written, outputs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("platform", choices=("gpu", "tpu", "cpu"))
    parser.add_argument("names", nargs="*", default=["rope"])
    parser.add_argument("--size", default="125m", choices=VOCAB)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=1)
    parser.add_argument("--length", type=int)
    parser.add_argument("--extension", default="none")
    parser.add_argument("--remat", action="store_true")
    parser.add_argument("--sharding")
    parser.add_argument("--top", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_intermixed_args()
    mesh = mesh_for(options.platform, options.devices, options.sequence)
    for name in options.names:
        began = time.perf_counter()
        size, rows, layers = options.size, options.rows, options.layers
        config = recipe(name, size, rows, layers, options.remat, options.sharding)
        if options.length is None:
            what, compiled = f"a step of {options.rows} rows", step(config, mesh)
        else:
            what = f"{options.extension} on {options.length:,} tokens"
            compiled = losses(config, mesh, options.length, options.extension)
        found = facts(compiled)
        print(
            f"{options.size} {name}, {what} on {mesh.devices.flat[0].device_kind}: "
            f"{found.launches:,} launches, {found.gigabytes:.0f} GB moved, "
            f"{found.temporary / 2**30:.2f} GiB temporary, {found.held / 2**30:.2f} in all, "
            f"{found.attention} kernels of attention, "
            f"{found.collectives or 'no collectives'} ({found.received:.1f} GB), "
            f"roofline {1e3 * found.seconds:.1f} ms "
            f"(compiled in {time.perf_counter() - began:.0f} s)",
            flush=True,
        )
        every = sorted(kernels(compiled.as_text()), key=lambda kernel: -kernel.seconds)
        by_kind = defaultdict(float)
        for kernel in every:
            by_kind[kernel.kind] += 1e3 * kernel.seconds
        print("  " + ", ".join(f"{kind} {ms:.1f} ms" for kind, ms in by_kind.items()), flush=True)
        for kernel in every[: options.top]:
            print(
                f"  {1e3 * kernel.seconds:8.2f} ms {kernel.launches:6} x {kernel.kind:9} "
                f"{kernel.bytes / 1e9:8.2f} GB {kernel.flops / 1e12:7.2f} TFLOP  {kernel.name}"
            )
        if options.out:
            options.out.write_text(compiled.as_text())


if __name__ == "__main__":
    main()
