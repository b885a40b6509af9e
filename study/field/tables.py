"""Tables of the page on the encodings of 2026."""

import re
from functools import cache, partial

import numpy as np
import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate, selected
from study.cells import STUDY, count, loss, of_documents, rows_of, short, table
from study.order import tables as order
from study.order.tables import AT_L, BUDGETS, FAR, FOUND, ORDER, L, known, names_of
from study.real import tables as real

ENCODINGS = order.ENCODINGS | {
    "pope": "PoPE",
    "rope++": "RoPE++",
    "retention": "retention",
    "decay, nope": "decay and NoPE",
    "decay, rope": "decay and RoPE",
    "selective": "selective RoPE",
    "selective, random": "random steps",
}
BESIDE = (  # of the page on order
    "RoPE",
    "RoPE with YaRN",
    "RoPE with PI",
    "NoPE",
    "NoPE with log-n",
    "forget gates",
    "CoPE",
    "FIRE",
)
PAIRS = (
    ("PoPE", "RoPE"),
    ("PoPE with YaRN", "RoPE with YaRN"),
    ("PoPE with PI", "RoPE with PI"),
    ("RoPE++", "RoPE"),
    ("RoPE++ with YaRN", "RoPE with YaRN"),
    ("RoPE++ with PI", "RoPE with PI"),
    ("decay and NoPE", "NoPE"),
    ("decay and NoPE", "retention"),
    ("decay and RoPE", "decay and NoPE"),
    ("decay and RoPE with YaRN", "decay and NoPE"),
    ("random steps", "RoPE with YaRN"),
    ("random steps", "NoPE"),
)
KEYS = ("all", "32", "8")  # that a query attends to


def encoding_of(run: str) -> str:
    """The encoding of a run, by the run's name."""
    name = run.split("-")[1]
    if name == "hybrid":
        return "decay, rope" if "global_rope=True" in run else "decay, nope"
    if name == "selective_rope":
        return "selective, random" if "steps=random" in run else "selective"
    return "rope++" if "imaginary=True" in run else name


def encodings_of(rows: pd.DataFrame) -> pd.Series:
    return rows.run.map(encoding_of).map(ENCODINGS)


@cache
def grid() -> pd.DataFrame:
    """Rows of this page's sweep and of its company, with the name of the method."""
    rows = rows_of("field/rows/budget")
    rows = rows.assign(name=names_of(encodings_of(rows), rows.method))
    # Log-n changes found and order of the others by 0.02 at most.
    rows = rows[(rows.method != "logn") | rows.name.str.startswith("random steps")]
    beside = order.grid()
    return pd.concat([rows, beside[beside.name.isin(BESIDE)]])


def differences() -> Table:
    """Differences in found and in order beyond L after the longest budget, paired by seed."""
    rows = known(grid())
    lines = {f"{one} less {other}": {"name": one, "less": {"name": other}} for one, other in PAIRS}
    rows, asked = rows[rows.step == BUDGETS[-1]], {"found": FOUND, "order": ORDER}
    made = table(rows, lines, asked, corner="after 9,600 steps", cell=partial(short, sign="+"))
    seeds = table(rows, lines, asked, cell=count, missing="0")
    body = [[*line, ", ".join(of[1:])] for line, of in zip(made.rows, seeds.rows, strict=True)]
    return Table("", [*made.head, "seeds of each"], body)


@cache
def sharpened() -> pd.DataFrame:
    """Rows of topk.py: the method without top-k, and the keys that a query attends to."""
    rows = pd.read_csv(STUDY / "field/rows/topk.csv")
    parts = rows.method.str.extract(r"^(?:(none|yarn:8)|(?:(yarn:8)\+)?topk:k=(\d+))$")
    names = names_of(encodings_of(rows), parts[0].fillna(parts[1]).fillna("none"))
    return rows.assign(name=names, keys=parts[2].fillna("all"))


def topk() -> Table:
    """Found and order beyond L with all keys and with the highest 32 and 8, and the cost at L."""
    body, seeds = [], AT_L | {"keys": "all", "cell": count}
    for (_, name), own in known(sharpened()).groupby(["steps", "name"]):
        cell = partial(short, of=max(3, own.seed.nunique()))
        columns = {"steps": seeds | {"value": "steps", "cell": order.whole}}
        for words, asked in (("found", FOUND), ("order", ORDER)):
            columns |= {f"{words}, {keys}": asked | {"keys": keys} for keys in KEYS}
            columns[f"{words}, 8 less all"] = asked | {
                "keys": "8",
                "less": {"keys": "all"},
                "cell": partial(cell, sign="+"),
            }
        columns |= {f"at L, {keys}": AT_L | {"keys": keys} for keys in ("all", "8")}
        made = table(own, {name: {}}, columns | {"seeds": seeds}, corner="keys:", cell=cell)
        body += made.rows
    return Table("", made.head, body)


@cache
def by_distance() -> pd.DataFrame:
    """Rows of fade.py beyond rows of L, with the name and the farthest of the distances of each, of
    runs that find 0.9 or more at every distance in rows of L."""
    rows = pd.read_csv(STUDY / "field/rows/fade.csv")
    rows = rows[rows.part.str.fullmatch(r"\d+-\d+")]
    at_L = rows[rows.length == L].groupby("run").found.min()
    rows = rows[(rows.length > L) & (rows.run.map(at_L) >= 0.9)]
    farthest = rows.part.str.extract(r"(\d+)$")[0].astype(int)
    return rows.assign(name=encodings_of(rows), farthest=farthest)


def fade() -> Table:
    """Found by the distance to the setting, in rows of each length, and their difference."""
    rows, lines, few, many = by_distance(), {}, {"length": FAR}, {"length": 8 * FAR}
    more = many | {"less": few, "cell": partial(short, sign="+")}
    for name in sorted(rows.name.unique()):
        own = {"name": name}
        lines |= {
            f"{name}, {FAR:,}": own | few,
            f"{name}, {8 * FAR:,}": own | many,
            f"{name}, {8 * FAR:,} less {FAR:,}": own | more,
        }
    columns = {one: {"part": one} for one in rows.sort_values("farthest").part.unique()}
    columns["seeds"] = {"part": "3-4", "cell": count}
    return table(rows, lines, columns, "found", corner="rows of")


def full() -> Table:
    """What hybrids find, and how many last values they answer, with a full layer of two tokens, and
    as trained beside retention alone."""
    rows, lines = pd.read_csv(STUDY / "field/rows/full.csv"), {}
    rows = rows.assign(name=encodings_of(rows))
    for name in sorted(rows.name.unique()):
        lines[f"{name}, as trained"] = {"name": name, "method": "none"}
        hidden = {"name": name, "method": re.compile("window.*")}
        lines[f"{name}, full layer: two tokens"] = hidden
    lines["retention, as trained"] = {"name": "retention"}
    columns = {
        "found, 33 to 64 back": FOUND | {"part": "33-64", "length": L},
        "65 to 128 back": FOUND | {"part": "65-128"},
        "129 to 256 back": FOUND | {"part": "129-256"},
        "beyond L": FOUND,
        "last of two at L": AT_L,
        "seeds": AT_L | {"cell": count},
    }
    alone = selected(grid(), {"name": "retention", "step": BUDGETS[-1]})
    return table(pd.concat([rows, alone]), lines, columns)


def real_topk() -> Table:
    """What 32 keys cost SmolLM2 on passages, and what their copies save with all keys and with 32,
    each distance alike, on the books that all methods read."""
    rows = selected(real.copies(), {"length": 12_288})
    rows = rows.assign(beyond=rows.back > real.L, nats=rows.nats / rows.targets, targets=1)
    rows = rows[rows.document.isin(rows[rows.method == "topk:k=32"].document)]
    # What a copy saves is a row too, of the same targets.
    keys = ["method", "beyond", "document"]
    sums = rows.groupby([*keys, "read"])[["nats", "targets"]].sum().unstack("read")
    saved = pd.DataFrame(
        {"nats": sums.nats[False] - sums.nats[True], "targets": sums.targets[False]}
    )
    rows = pd.concat([rows, saved.reset_index().assign(read="saved")])
    body = []
    for whole, sharp in (("none", "topk:k=32"), ("yarn:2", "yarn:2+topk:k=32")):
        less = {"less": {"method": whole}}
        columns = {
            "added by 32 keys": {"method": sharp, "read": False} | less,
            "saved with all": {"method": whole, "read": "saved"},
            "with 32": {"method": sharp, "read": "saved"},
            "32 less all": {"method": sharp, "read": "saved"} | less,
        }
        lines = {
            f"{whole}, at most L back": {"beyond": False},
            f"{whole}, more than L back": {"beyond": True},
        }
        made = of_documents(rows, lines, columns, corner="copies:")
        body += made.rows
    return Table("", made.head, body)


def lazy() -> Table:
    """Steps until a hybrid finds 0.9 of what is 33 to 64 tokens back, and found beyond L."""
    rows = pd.read_csv(STUDY / "field/rows/reach.csv")
    rows["window"] = rows.run.str.extract(r"window=(\d+)")[0].astype(int)
    rows["rope"] = rows.run.str.contains("global_rope=True")
    reached = rows[(rows.length == L) & (rows.found >= 0.9)].groupby("run").step.min()
    last = rows[rows.step == rows.groupby("run").step.transform("max")]
    last = last.assign(reached=last.run.map(reached).fillna(np.inf))
    lines = [
        (
            f"{window} tokens, {'RoPE' if rope else 'no positions'} in the full layer",
            {"rope": rope, "window": window},
        )
        for rope, window in rows.groupby(["rope", "window"]).groups
    ]
    columns = {
        "steps of each seed until 0.9": {"length": L, "value": "reached", "cell": each},
        "found, 33 to 64 back": {"length": L},
        "beyond L": {"length": FAR},
    }
    return table(last, lines, columns, "found", corner="window")


def each(steps: Estimate) -> str:
    return ", ".join("-" if np.isinf(one) else f"{one:,.0f}" for one in sorted(steps.values))


def riffled() -> Table:
    """The price that another book adds to SmolLM2, that of a reader of the last block, and their
    difference: what its own earlier blocks save."""
    alone, price, null = ({"part": part} for part in ("alone", "riffled", "foreign"))
    columns = {
        "loss alone": alone | {"cell": loss},
        "price": price | {"less": alone},
        "null": null | {"less": alone},
        "saved": null | {"less": price},
    }
    lines = {method: {"method": method} for method in ("none", "yarn:2", "self_extend")}
    return of_documents(real.of_protocol("riffle"), lines, columns)


def riffled_text() -> Table:
    """Loss alone, price and saved on source code, at L and at 4 L."""
    columns = {
        f"{part}, {words}": {"length": length, "part": part}
        for words, length in (("L", 128), ("4 L", 512))
        for part in ("alone", "price", "saved")
    }
    lines = {method: {"method": method} for method in ("none", "yarn:4", "pi:4", "self_extend")}
    return table(rows_of("field/rows/text"), lines, columns, "nll")


TABLES = {
    "budget": lambda: order.by_budget(grid()),
    "differences": differences,
    "apart": lambda: order.by_separation(grid()),
    "full": full,
    "topk": topk,
    "real-topk": real_topk,
    "fade": fade,
    "lazy": lazy,
    "riffle": riffled,
    "riffle-text": riffled_text,
}
