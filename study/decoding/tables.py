"""The table of the page on decoding."""

from functools import cache

import pandas as pd

from posenc_jax.display import Table
from study.cells import STUDY, loss, of_documents

NAMES = {"dynamic_yarn": "YaRN", "dynamic_pi": "interpolation", "dynamic_ntk": "NTK"}
FAR = 1_024


@cache
def decoded() -> pd.DataFrame:
    """Nats and targets of every run, method, semantics, length and document."""
    files = sorted((STUDY / "decoding" / "rows").glob("*.csv.xz"))
    return pd.concat([pd.read_csv(file).assign(seed=seed) for seed, file in enumerate(files)])


def costs() -> Table:
    """Nats per token at L and at 8 L, and what stale keys and a window add."""
    lines = {f"dynamic {name}": {"method": method} for method, name in NAMES.items()}
    current = {"semantics": ["prefix", "none"]}
    columns = {
        "current keys, L": current | {"length": 128, "cell": loss},
        "current keys, 8 L": current | {"length": FAR, "cell": loss},
        "stale keys, 8 L": {"semantics": "stale", "length": FAR, "cell": loss},
    }
    for n in (2, 8):
        stale = {"semantics": "stale", "length": n * 128, "less": current}
        columns[f"stale less current, {n} L"] = stale
    window = {"semantics": "window", "length": FAR, "less": current}
    columns["one scale per window less current, 8 L"] = window
    lines["RoPE alone"] = {"method": "none"}
    return of_documents(decoded(), lines, columns, missing="-")


TABLES = {"costs": costs}
