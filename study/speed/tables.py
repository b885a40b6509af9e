"""Tables of the page on speed and memory."""

from functools import cache, partial
from typing import Any

import pandas as pd

from study.cells import STUDY, markdown

ROWS = STUDY / "speed"
OVER_NONE, SHARE = "time over no bias", "of the products' rate"  # measures of benchmarks
F32, BF16 = "float32 over torch", "bfloat16 over torch"
MACHINES = {
    "amd-epyc-25-1": "Zen 3",
    "amd-epyc-25-17": "Zen 4",
    "amd-epyc-zen-5": "Zen 5",
    "intel-r-xeon-r-processor-6-167": "Xeon",
}
TARGETS = [  # what, the least or most wanted, benchmark, case, measure
    (
        "attention with T5's bias over `jax.nn`, T = 256",
        "1.5",
        "attention",
        "256 t5",
        "over jax.nn",
    ),
    ("T = 512", "2", "attention", "512 t5", "over jax.nn"),
    ("T = 1,024", "3", "attention", "1024 t5", "over jax.nn"),
    ("T = 2,048", "3.5", "attention", "2048 t5", "over jax.nn"),
    ("time with T5's bias over none, T = 512", "≤ 1.15", "attention", "512 t5", OVER_NONE),
    ("time with FIRE's bias over none, T = 512", "≤ 1.5", "attention", "512 fire", OVER_NONE),
    ("T = 2,048", "≤ 1.5", "attention", "2048 fire", OVER_NONE),
    *(
        (f"training step over {how} x-transformers, {name}, {size}", least, "train_step", case, of)
        for how, least in (("eager", "2"), ("compiled", "1.3"))
        for name, scheme in (("RoPE", "rope"), ("ALiBi", "alibi"), ("T5", "t5"))
        for size in ("128 x 32", "512 x 8")
        for case, of in ((f"{size} {scheme}", f"over {how}"),)
    ),
    ("share of the products' rate, RoPE, 128 x 32", "60%", "train_step", "128 x 32 rope", SHARE),
    ("512 x 8", "60%", "train_step", "512 x 8 rope", SHARE),
    ("forward pass at SmolLM2's shape over torch, float32, T = 2,048", "1", "real", "2048", F32),
    ("T = 8,192", "1", "real", "8192", F32),
    ("T = 16,384", "1", "real", "16384", F32),
    ("bfloat16, T = 2,048", "1", "real", "2048", BF16),
    ("T = 8,192", "1", "real", "8192", BF16),
    ("bfloat16 over float32, T = 2,048", "1.5", "real", "2048", "bfloat16 over float32"),
    ("T = 8,192", "1.5", "real", "8192", "bfloat16 over float32"),
    *(
        (what, "≤ 1", "decode_real", f"{prompt} rope", "time per token over transformers")
        for prompt, what in (
            (512, "decoding at SmolLM2's shape, time per token over transformers, T = 512"),
            (4096, "T = 4,096"),
            (16384, "T = 16,384"),
        )
    ),
    *(
        (f"decoding, time per token over {how} x-transformers, {name}, T = {prompt:,}", "≤ 1")
        + ("decode_small", f"{prompt} {scheme}", f"time per token over {how}")
        for name, scheme in (("RoPE", "rope"), ("ALiBi", "alibi"), ("T5", "t5"))
        for how in (("eager",) if scheme == "t5" else ("eager", "flash"))
        for prompt in (512, 4096)
    ),
]


@cache
def speeds() -> pd.DataFrame:
    """Ratios of all benchmarks on all machines."""
    files = [ROWS / f"{stem}.csv" for stem in MACHINES]
    names = zip(files, MACHINES.values(), strict=True)
    return pd.concat([pd.read_csv(file).assign(machine=name) for file, name in names])


def ratio(row: Any) -> str:
    if row.measure == SHARE:
        return f"{row.middle:.0%}"
    if row.low == row.high:  # no spread
        return f"{row.middle:.2f}"
    return f"{row.middle:.2f} ({row.low:.2f} to {row.high:.2f})"


def machines() -> str:
    """Machine and versions of every measurement."""
    rows = speeds().fillna("").drop_duplicates(["machine", "benchmark", "commit"])
    columns = ["machine", "processor", "cores", "benchmark", "jaxlib", "torch", "commit", "date"]
    return markdown(columns, rows[columns].astype(str).to_numpy().tolist())


def targets() -> str:
    """Every target beside what each machine reached."""
    rows, names = speeds(), list(MACHINES.values())
    body = []
    for what, wanted, *place in TARGETS:
        chosen = rows[(rows[["benchmark", "case", "measure"]] == place).all(axis=1)]
        found = {row.machine: ratio(row) for row in chosen.itertuples()}
        body.append([what, wanted, *(found.get(name, "-") for name in names)])
    return markdown(["", "target", *names], body)


def by_machine(benchmark: str) -> str:
    """A benchmark: a line per case and machine, a column per measure."""
    rows = speeds()[speeds().benchmark == benchmark]
    measures = list(rows.measure.unique())
    body = []
    for (case, machine), own in rows.groupby(["case", "machine"], sort=False):
        found = {row.measure: ratio(row) for row in own.itertuples()}
        body.append([case, machine, *(found.get(measure, "-") for measure in measures)])
    order = {case: place for place, case in enumerate(rows.case.unique())}
    body.sort(key=lambda line: order[line[0]])
    return markdown(["case", "machine", *measures], body)


def by_length(benchmark: str) -> pd.DataFrame:
    """Rows of a benchmark whose cases are a number of tokens and an encoding."""
    rows = speeds()[speeds().benchmark == benchmark]
    cases = rows.case.str.split(" ", n=1, expand=True)
    return rows.assign(tokens=cases[0].astype(int), encoding=cases[1])


def schemes() -> str:
    """Time over no position: a line per encoding, a column per length and machine."""
    rows = by_length("schemes")
    columns = list(rows.groupby(["tokens", "machine"], sort=False).groups)
    body = []
    for encoding, own in rows.groupby("encoding", sort=False):
        found = {(row.tokens, row.machine): ratio(row) for row in own.itertuples()}
        body.append([encoding, *(found.get(place, "-") for place in columns)])
    return markdown(["", *(f"{tokens:,}, {machine}" for tokens, machine in columns)], body)


def decoding() -> str:
    """Speed and memory of decoding: a line per encoding and machine, a column per context."""
    rows = by_length("decode_encodings")
    columns = [(what, n) for what in rows.measure.unique() for n in sorted(rows.tokens.unique())]
    body = []
    for (encoding, machine), own in rows.groupby(["encoding", "machine"], sort=False):
        values = own.set_index(["measure", "tokens"]).middle
        cells = [f"{values[place]:,.0f}" if place in values else "-" for place in columns]
        body.append([encoding, machine, *cells])
    return markdown(["", "machine", *(f"{what}, {n:,}" for what, n in columns)], body)


TABLES = {
    "machines": machines,
    "targets": targets,
    "attention": partial(by_machine, "attention"),
    "steps": partial(by_machine, "train_step"),
    "real": partial(by_machine, "real"),
    "memory": partial(by_machine, "memory"),
    "decode-real": partial(by_machine, "decode_real"),
    "decode-small": partial(by_machine, "decode_small"),
    "decode": decoding,
    "schemes": schemes,
}
