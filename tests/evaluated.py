"""Folders of evaluated runs with losses chosen by the test."""

import json
import zlib

import numpy as np
import pytest
from measuring import made_cell

from posenc_jax.config.resolve import FORMAT
from posenc_jax.evaluation import protocols, records

LENGTHS = (16, 32, 64)
DOCUMENTS = 12


def make_run(
    folder,
    encoding,
    seed,
    better=0.0,
    targets="t",
    evaluated=True,
    scales=(2.0,),
    documents=DOCUMENTS,
    **fields,
):
    """Write a run's folder with an evaluation; lower losses by `better`."""
    folder.mkdir(parents=True)
    config = {
        "seed": seed,
        "train_length": 32,
        "batch_size": 4,
        "steps": 10,
        "model": {"layers": 2, "width": 8},
        "encoding": {"name": encoding},
        "format": FORMAT,
        "extension": {"name": "none"},
        "data": {"source": "stdlib"},
    } | fields
    (folder / "config.json").write_text(json.dumps(config))
    status = {"state": "done", "step": 10, "digest": "d", "command": "train.py --config=x.py"}
    data = {"fingerprint": "abc", "documents": 3, "tokens": 1200, "bytes_per_token": 1.0}
    data |= {"in_longer": 0.25}
    (folder / "status.json").write_text(json.dumps(status | {"data": data}))
    lines = [
        {"step": step, "loss": 2.0, "tokens_per_second": 1000.0 * step, "memory_mib": 100.0 + step}
        for step in (1, 5, 10)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if not evaluated:
        return folder
    rng = np.random.default_rng(0)  # a document is equally hard for every run
    tokens = np.full(documents, 50.0)
    difficulty = tokens * (2 + rng.random(documents))
    noise = np.random.default_rng([seed, zlib.crc32(encoding.encode())]).normal(0, 0.5, documents)
    cells = []
    for protocol in protocols.shown():
        if protocol.value == "accuracy" or protocol.by_part:  # the text has no questions
            continue
        by_place = protocol.by_place
        for length in LENGTHS[-1:] if by_place else LENGTHS:
            for extension, scale in (("none", None), *(("pi", scale) for scale in scales)):
                worse = (0.3 * length / 16 if scale else 0.0) - better
                facts = dict.fromkeys(protocols.facts()) | {
                    "run": folder.name,
                    "encoding": encoding,
                    "extension": extension,
                    "scale": scale,
                    "protocol": protocol.name,
                    "train_length": 32,
                    "length": length,
                    "token_hash": targets,
                    "seed": seed,
                    "step": 10,
                }
                places = np.full(length, 2.5) if by_place else np.zeros(0)
                nats = difficulty + noise + worse * tokens
                extra = dict(within_nats=nats, within_tokens=tokens, early=tokens / 2)
                extra |= dict(tail_nats=nats, tail_tokens=tokens)
                cells.append(made_cell(facts, nats, tokens, places, **extra))
    records.write(folder / "eval", cells)
    return folder


@pytest.fixture
def sweep(tmp_path):
    folder = tmp_path / "sweep"
    for seed in range(3):
        make_run(folder / f"rope-s{seed}", "rope", seed, better=0.5)
        make_run(folder / f"alibi-s{seed}", "alibi", seed, better=0.5)
        make_run(folder / f"nope-s{seed}", "nope", seed)
    make_run(folder / "t5-s0", "t5", 0, evaluated=False)
    return folder
