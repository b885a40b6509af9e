"""The law of the map, which has no parameter: of two settings RoPE answers with the one whose
mapped distance is smaller, and with either if the map gives both the same distance."""

from functools import cache

import numpy as np
import pandas as pd

import posenc_jax
from posenc_jax.data import tasks
from posenc_jax.display import Table
from posenc_jax.extensions import distance
from posenc_jax.report.frames import selected
from study.cells import STUDY, table
from study.order.tables import APART, EXTENSIONS, FAR, SEPARATED, L, grid, separated

METHODS = ("dca", "self_extend:window=4", "self_extend:window=16")
KINDS = {1.0: "kept", 0.5: "tied", 0.0: "turned round"}  # pairs, by what the law expects
ENDS = [0, *(int(apart.rpartition("-")[2]) for apart in APART), FAR]
FEWEST = 40  # answers of a seed


@cache
def pairs() -> pd.DataFrame:
    """The pairs of `last_of_two` beyond L in the test that all runs read: document, place of the
    question, places of the last and of the older setting, and the part of their separation."""
    task = tasks.make("variables", L, variant="ordered", gaps="octaves")
    find, found = tasks.settings_of("variables"), []
    for document, drawn in enumerate(task.draw("valid", tasks.TESTS, 0)):
        for answer in np.flatnonzero(drawn.answers):
            asked, back = answer - 1, find(drawn.text[: answer + 1]).back
            if asked >= FAR // 2 and len(back) == 2 and back[0] > L:
                found.append((document, asked, *(asked - back)))
    rows = pd.DataFrame(found, columns=["document", "asked", "last", "older"])
    apart = pd.cut(rows["last"] - rows.older, ENDS, labels=[*APART, f"{ENDS[-2] + 1}-{FAR}"])
    return rows.assign(part="apart-" + apart.astype(str))


@cache
def expected(method: str) -> pd.DataFrame:
    """The pairs with the share that the law expects to be answered with the last value."""
    dims = posenc_jax.Dims(heads=4, head_dim=32, width=128, train_length=L)
    mapped = distance.table(posenc_jax.extend(method, posenc_jax.build("rope", dims), FAR / L), FAR)
    rows = pairs()
    last, older = (mapped[rows.asked, rows[setting]] for setting in ("last", "older"))
    return rows.assign(share=(1 + np.sign(older - last)) / 2)


def by_separation(method: str) -> list[float]:
    shares = expected(method).groupby("part").share.mean()
    return [shares[f"apart-{apart}"] for apart in APART]


def name_of(method: str) -> str:
    return f"RoPE with {EXTENSIONS[method]}"


def off_by(method: str) -> str:
    """Mean distance of the law from the measured order, over the separations."""
    law, own = by_separation(method), separated(grid())[name_of(method)]
    return f"{np.mean([abs(share - one.mean) for share, one in zip(law, own, strict=True)]):.3f}"


@cache
def by_kind() -> pd.DataFrame:
    """Order of every seed on the pairs that a map keeps, ties or turns round: published are sums by
    document and part, so of those whose pairs are all of one kind."""
    folder = STUDY / "order/rows/budget"
    sums = pd.read_csv(folder / "documents.csv.xz", dtype={"part": str}, low_memory=False)
    sums = selected(sums, {"protocol": "last_of_two", "length": FAR})
    keys, found = ["document", "part"], []
    for method in METHODS:
        shares = expected(method).groupby(keys).share.agg(["min", "max"])
        pure = shares[shares["min"] == shares["max"]]["min"].map(KINDS).rename("kind")
        runs = [
            one for one in sums if one.startswith("ordered-rope-") and one.endswith(f"@{method}")
        ]
        own = sums.melt([*keys, "answers"], runs, "run", "right").dropna(subset="right")
        found.append(own.join(pure, keys, how="inner").assign(name=name_of(method)))
    rows = pd.concat(found, ignore_index=True)  # the next join is by index
    facts = rows.run.str.extract(r"-s(?P<seed>\d+)-steps=(?P<step>\d+)-").astype(int)
    keys = ["name", "kind", "seed", "step"]
    rows = rows.join(facts).groupby(keys)[["right", "answers"]].sum().reset_index()
    return rows[rows.answers >= FEWEST].assign(order=rows.right / rows.answers)


def measured() -> Table:
    """Order by what the map does to a pair, and of tied pairs after the longest budget too; how
    far the law is from order by separation."""
    columns = {
        f"{kind}, {SEPARATED:,}": {"kind": kind, "step": SEPARATED} for kind in KINDS.values()
    }
    columns["tied, 9,600"] = {"kind": "tied", "step": 9_600}
    lines = {EXTENSIONS[method]: {"name": name_of(method)} for method in METHODS}
    made = table(by_kind(), lines, columns, "order", corner="pairs that the map")
    body = [[*row, off_by(method)] for row, method in zip(made.rows, METHODS, strict=True)]
    return Table("", [*made.head, "off by"], body)


TABLES = {"kinds": measured}
