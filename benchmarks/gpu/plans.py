"""Sizes of what is measured: ten minutes, three times ten, or one on a CPU to try all of it."""

import dataclasses

ENCODINGS = ("rope", "alibi", "t5", "fire")


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of every part, and the seconds it may take."""

    limits: dict[str, int]  # part: seconds; in the order of parts, the least certain first
    attention: tuple[int, int, int]  # batch, heads, head size
    kernel_lengths: tuple[int, ...]
    kernel_encodings: tuple[str, ...] | None  # None: all
    kernel_extensions: tuple[str, ...] | None  # None: all that fit RoPE
    steps: tuple[tuple[str, str], ...]  # (size, encoding)
    length_size: str  # of the models that are trained and read at each length
    lengths: tuple[int, ...]
    tokens: int  # in a step at each length
    length_encodings: tuple[str, ...]
    seeds: tuple[tuple[str, int], ...]  # (size, how many at once)
    runs: tuple[tuple[str, str], ...]  # (encoding, dtype) of the runs that are repeated
    run_size: str
    starts: int  # rounds
    seconds: float  # of each timing
    fields: dict = dataclasses.field(default_factory=dict)  # of every model, over its recipe
    platform: str = "gpu"


SHORT = Plan(
    limits={
        "kernels": 170,
        "steps": 150,
        "lengths": 100,
        "seeds": 60,
        "determinism": 80,
        "starts": 60,
    },
    attention=(4, 12, 64),
    kernel_lengths=(1024,),
    kernel_encodings=None,
    kernel_extensions=None,
    steps=(
        *(("125m", name) for name in ENCODINGS),
        ("base", "rope"),
        ("small", "rope"),
        ("tiny", "rope"),
    ),
    length_size="small",
    lengths=(1024, 8192, 32_768),
    tokens=32_768,
    length_encodings=("rope", "t5"),
    seeds=(("tiny", 4),),
    runs=(("rope", "bfloat16"), ("t5", "bfloat16")),
    run_size="small",
    starts=1,
    seconds=1.5,
)
FULL = dataclasses.replace(
    SHORT,
    limits={
        "kernels": 500,
        "steps": 500,
        "lengths": 400,
        "seeds": 150,
        "determinism": 200,
        "starts": 120,
    },
    kernel_lengths=(1024, 512, 4096),
    steps=tuple((size, name) for size in ("125m", "base", "small", "tiny") for name in ENCODINGS),
    lengths=(512, 1024, 2048, 4096, 8192, 16_384, 32_768),
    length_encodings=ENCODINGS,
    seeds=(("tiny", 2), ("tiny", 8), ("small", 2), ("small", 4)),
    runs=tuple(
        (name, dtype) for dtype in ("bfloat16", "float32") for name in ("rope", "t5", "fire")
    ),
    starts=3,
    seconds=3.0,
)
DRY = dataclasses.replace(
    SHORT,
    limits=dict.fromkeys(SHORT.limits, 300),
    attention=(1, 2, 8),
    kernel_lengths=(128,),
    kernel_encodings=("t5",),
    kernel_extensions=("yarn",),
    steps=(("tiny", "rope"),),
    length_size="tiny",
    lengths=(64,),
    tokens=128,
    length_encodings=("rope",),
    seeds=(("tiny", 2),),
    runs=(("rope", "float32"),),
    run_size="tiny",
    seconds=0.0,
    fields={
        "model.layers": 1,
        "model.width": 32,
        "model.heads": 2,
        "train_length": 32,
        "batch_size": 4,
    },
    platform="cpu",
)
PLANS = {"short": SHORT, "full": FULL, "dry": DRY}
