"""Techniques of shipped models on `variables`: hybrids, scales by the number of keys, partial or
trained rotation, sinks and gates around RoPE; three seeds.

python scripts/sweep.py --config=study/retrieval/shipped.py --workdir=runs/shipped \\
    --workers=2
python scripts/report.py runs/variables runs/shipped --out=report

A run takes two to four minutes on one core. Models have two layers, so a hybrid has one local and
one global layer. Four-layer hybrids, with a four-layer RoPE as baseline, learn the task no better
(shipped.md). Gates alone (fox) and methods that remap positions at evaluation, such as
self_extend, are in study/retrieval/sweep.py.
"""

from posenc_jax.sweeping.grid import axis, chain, product
from study.retrieval import sweep as variables

PATTERN = {"encoding.pattern": "local,global"}
WINDOWED = PATTERN | {"encoding.window": 32}
LLAMA4 = {
    "encoding.inner": "hybrid:pattern=local/global:window=32:chunked=True",
    "encoding.kind": "llama4",
    "encoding.layers": "global",
}
SCHEMES = [
    ("hybrid, global nope", "hybrid_nope", WINDOWED),
    ("hybrid, global rope", "hybrid_bases", PATTERN),
    ("trained scale, rope", "ssmax", {}),
    ("trained scale, nope", "ssmax", {"encoding.inner": "nope"}),
    ("llama4: chunks, global nope", "ssmax", LLAMA4),
    ("rope, 3/4 of pairs turn", "prope", {}),
    ("rope, pairs that turn within L", "prope", {"encoding.keep": "turned"}),
    ("rope, trained frequencies", "rope_trained", {}),
    ("rope, sink", "rope", {"encoding.sink": True}),
    ("gates, rope", "fox", {"encoding.inner": "rope"}),
    ("gates that start open", "fox", {"encoding.bias_init": 5.0}),
    ("gates without content", "fox", {"encoding.gate": "bias_only"}),
    ("ministral3 scale, rope", "ssmax", {"encoding.kind": "ministral3"}),
    ("inkling scale, rope", "ssmax", {"encoding.kind": "inkling"}),
]
DEEP = {"model.layers": 4}
DEEPER = [
    ("rope, 4 layers", "rope", DEEP),
    ("hybrid, global nope, 4 layers", "hybrid_nope", DEEP | WINDOWED),
    ("hybrid, global rope, 4 layers", "hybrid_bases", DEEP | PATTERN),
]


def get_config():
    schemes, deeper = (
        [
            {"label": label, "recipe": f"configs/variables.py:{name}"} | fields
            for label, name, fields in table
        ]
        for table in (SCHEMES, DEEPER)
    )
    config = variables.get_config()
    return config | {
        "grid": chain(*(product(axis("seed", range(3)), jobs) for jobs in (schemes, deeper))),
        "evaluation": config["evaluation"] | {"extensions": "none,yarn,self_extend,logn"},
    }
