"""Tables of the page on the encodings of 2026."""

from functools import cache

import numpy as np
import pandas as pd

from study.cells import STUDY, less, markdown, published, seeds, short, signed
from study.order import tables as order
from study.order.tables import BUDGETS, FAR, L, measured
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
    rows = order.published("field/rows/budget")
    rows = rows.assign(name=order.names_of(encodings_of(rows), rows.method))
    # Log-n changes found and order of the others by 0.02 at most.
    rows = rows[(rows.method != "logn") | rows.name.str.startswith("random steps")]
    beside = order.grid()
    return pd.concat([rows, beside[beside.name.isin(BESIDE)]])


def differences() -> str:
    """Differences in found and in order beyond L after the longest budget, paired by seed."""
    rows = grid()
    rows, body = rows[rows.steps == BUDGETS[-1]], []
    for one, other in PAIRS:
        cells, counts = [], []
        for protocol, value in (("found", "found"), ("last_of_two", "order")):
            wide = measured(rows, protocol).pivot_table(value, "seed", "name")
            both = wide.reindex(columns=[one, other]).dropna()
            cells.append(short((both[one] - both[other]).to_numpy(), "+"))
            counts.append(len(both))
        body.append([f"{one} less {other}", *cells, "{}, {}".format(*counts)])
    return markdown(["after 9,600 steps", "found", "order", "seeds of each"], body)


@cache
def sharpened() -> pd.DataFrame:
    """Rows of topk.py: the method without top-k, and the keys that a query attends to."""
    rows = pd.read_csv(STUDY / "field/rows/topk.csv")
    parts = rows.method.str.extract(r"^(?:(none|yarn:8)|(?:(yarn:8)\+)?topk:k=(\d+))$")
    methods = parts[0].fillna(parts[1]).fillna("none")
    names = order.names_of(encodings_of(rows), methods)
    return rows.assign(name=names, keys=parts[2].fillna("all"))


def topk() -> str:
    """Found and order beyond L with all keys and with the highest 32 and 8, and the cost at L."""
    body = []
    for (steps, name), own in sharpened().groupby(["steps", "name"]):
        cells, of = [], max(3, own.seed.nunique())
        for protocol, value in (("found", "found"), ("last_of_two", "order")):
            wide = measured(own, protocol).pivot_table(value, "seed", "keys")
            wide = wide.reindex(columns=KEYS)
            cells += [short(wide[keys].dropna().to_numpy(), of=of) for keys in KEYS]
            cells.append(short((wide["8"] - wide["all"]).dropna().to_numpy(), "+", of))
        at_L = measured(own, "last_of_two", "within", L)
        at_L = [seeds(at_L[at_L["keys"] == keys], "accuracy") for keys in ("all", "8")]
        cells += [short(one, of=of) for one in at_L]
        body.append([str(name), f"{steps:,}", *cells, str(own.seed.nunique())])
    head = [f"{what}, {keys}" for what in ("found", "order") for keys in (*KEYS, "8 less all")]
    return markdown(["keys:", "steps", *head, "at L, all", "at L, 8", "seeds"], body)


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


def fade() -> str:
    """Found by the distance to the setting, in rows of each length, and their difference."""
    rows, body = by_distance(), []
    parts = rows.sort_values("farthest").part.unique()
    for name, own in rows.groupby("name"):
        wide = own.pivot_table("found", ["length", "seed"], "part").reindex(columns=parts)
        short_rows, long_rows = (wide.loc[length] for length in (FAR, 8 * FAR))
        for words, values, sign in (
            (f"{FAR:,}", short_rows, ""),
            (f"{8 * FAR:,}", long_rows, ""),
            (f"{8 * FAR:,} less {FAR:,}", long_rows - short_rows, "+"),
        ):
            cells = [short(values[part].dropna().to_numpy(), sign) for part in parts]
            body.append([f"{name}, {words}", *cells, str(len(values))])
    return markdown(["rows of", *parts, "seeds"], body)


def full() -> str:
    """What hybrids find, and how many last values they answer, with a full layer of two tokens, and
    as trained beside retention alone."""
    rows, body = pd.read_csv(STUDY / "field/rows/full.csv"), []
    asked = (
        ("found", "33-64", "found", L),
        ("found", "65-128", "found", FAR),
        ("found", "129-256", "found", FAR),
        ("found", "beyond", "found", FAR),
        ("last_of_two", "within", "accuracy", L),
    )

    def line(name: str, own: pd.DataFrame) -> list[str]:
        cells = [
            short(seeds(measured(own, protocol, part, length), value))
            for protocol, part, value, length in asked
        ]
        return [name, *cells, str(own.seed.nunique())]

    rows = rows.assign(name=encodings_of(rows))
    for name, own in rows.groupby("name"):
        for method, words in (("none", "as trained"), ("window", "full layer: two tokens")):
            body.append(line(f"{name}, {words}", own[own.method.str.startswith(method)]))
    alone = grid()
    alone = alone[(alone.name == "retention") & (alone.steps == BUDGETS[-1])]
    body.append(line("retention, as trained", alone))
    head = ["", "found, 33 to 64 back", "65 to 128 back", "129 to 256 back", "beyond L"]
    return markdown([*head, "last of two at L", "seeds"], body)


def real_topk() -> str:
    """What 32 keys cost SmolLM2 on passages, and what their copies save with all keys and with 32,
    each distance alike, on the books that all methods read."""
    rows = real.copies(12_288).reset_index("back")
    rows = rows.assign(beyond=rows.back > real.L, nats=rows.nats / rows.targets, targets=1)
    books = rows.loc["topk:k=32"].index.unique("document")
    rows = rows[rows.index.isin(books, level="document")]
    sums = rows.groupby(["method", "beyond", "read", "document"])[["nats", "targets"]].sum()

    def saved(method: str, beyond: bool) -> pd.DataFrame:
        unread = sums.loc[method, beyond, False]
        return unread.assign(nats=unread.nats - sums.loc[method, beyond, True].nats)

    body = []
    for whole, sharp in (("none", "topk:k=32"), ("yarn:2", "yarn:2+topk:k=32")):
        for beyond in (False, True):
            own, other = saved(sharp, beyond), saved(whole, beyond)
            added = less(sums.loc[sharp, beyond, False], sums.loc[whole, beyond, False])
            found = [added, *(less(one, one.assign(nats=0.0)) for one in (other, own))]
            name = f"{whole}, {'more than' if beyond else 'at most'} L back"
            body.append([name, *map(signed, [*found, less(own, other)])])
    head = ["copies:", "added by 32 keys", "saved with all", "with 32", "32 less all"]
    return markdown(head, body)


def lazy() -> str:
    """Steps until a hybrid finds 0.9 of what is 33 to 64 tokens back, and found beyond L."""
    rows, body = pd.read_csv(STUDY / "field/rows/reach.csv"), []
    window = rows.run.str.extract(r"window=(\d+)")[0].astype(int)
    rotated = rows.run.str.contains("global_rope=True")
    for (rope, size), own in rows.groupby([rotated, window]):
        near, beyond = own[own.length == L], own[own.length == FAR]
        reached = near[near.found >= 0.9].groupby("seed").step.min()
        steps = reached.reindex(near.seed.unique(), fill_value=np.inf).sort_values()
        name = f"{size} tokens, {'RoPE' if rope else 'no positions'} in the full layer"
        cells = [", ".join("-" if np.isinf(one) else f"{int(one):,}" for one in steps)]
        last = near[near.step == near.step.max()]
        cells += [short(seeds(last, "found")), short(seeds(beyond, "found"))]
        body.append([name, *cells])
    head = ["window", "steps of each seed until 0.9", "found, 33 to 64 back", "beyond L"]
    return markdown(head, body)


def riffled() -> str:
    """The price that another book adds to SmolLM2, that of a reader of the last block, and their
    difference: what its own earlier blocks save."""
    rows, body = real.of_smollm2("riffle").sort_values("document"), []
    for method in ("none", "yarn:2", "self_extend"):
        own = rows[rows.method == method]
        alone, riffled, foreign = (
            own[own.part == part] for part in ("alone", "riffled", "foreign")
        )
        loss = f"{alone.nats.sum() / alone.targets.sum():.3f}"
        price, null = less(riffled, alone), less(foreign, alone)
        body.append([method, loss, *map(signed, (price, null, less(foreign, riffled)))])
    return markdown(["", "loss alone", "price", "null", "saved"], body)


def riffled_text() -> str:
    """Loss alone, price and saved on source code, at L and at 4 L."""
    rows, body = published("field/rows/text"), []
    asked = [(length, part) for length in (128, 512) for part in ("alone", "price", "saved")]
    for method in ("none", "yarn:4", "pi:4", "self_extend"):
        own = rows[rows.method == method]
        cells = [own[(own.length == length) & (own.part == part)] for length, part in asked]
        body.append([method, *(short(seeds(one, "nll")) for one in cells)])
    head = [f"{part}, {'L' if length == 128 else '4 L'}" for length, part in asked]
    return markdown(["", *head], body)


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
