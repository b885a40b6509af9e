"""Tables of the page on the encodings of 2026."""

from functools import cache, partial

import numpy as np
import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate, selected
from posenc_jax.sweeping.rates import read_choices
from study.cells import STUDY, of_documents, rows_of, short, table
from study.field import kth
from study.field.mixtures import RATES
from study.order import tables as order
from study.order.tables import AT_L, BUDGETS, FAR, FOUND, ORDER, L, known, names_of
from study.real import tables as real

TURNED = "pairs that turn within L"
ENCODINGS = order.ENCODINGS | {
    "pope": "PoPE",
    "fope": "FoPE",
    "prope": TURNED,
    "rope++": "RoPE++",
    "retention": "retention",
    "decay, nope": "decay and NoPE",
    "decay, rope": "decay and RoPE",
    "selective": "selective RoPE",
    "selective, random": "random steps",
}
BESIDE = ("RoPE", "RoPE with YaRN", "RoPE with PI", "NoPE")  # of the page on order
SHOWN = (  # by budget
    "NoPE",
    "RoPE",
    "RoPE with YaRN",
    "PoPE",
    "PoPE with YaRN",
    "retention",
    "decay and NoPE",
    "decay and RoPE",
)
SHOWN_FOPE = (
    "FoPE",
    TURNED,
    "RoPE",
    "PoPE",
    "FoPE with YaRN",
    f"{TURNED} with YaRN",
    "RoPE with YaRN",
)
PAIRS = (
    ("PoPE", "RoPE"),
    ("PoPE with YaRN", "RoPE with YaRN"),
    ("RoPE++ with YaRN", "RoPE with YaRN"),
    ("decay and NoPE", "retention"),
    ("decay and RoPE", "decay and NoPE"),
)
ITEM_ENCODINGS = {name: ENCODINGS[name] for name in ("nope", "fire", "rope", "alibi", "fox")}
ITEM_METHODS = {
    "none": "8 L",
    "yarn:8": "YaRN",
    "pi:8": "PI",
    "self_extend": "Self-Extend",
    "logn": "log-n",
}
MODELS = {"smollm2": "SmolLM2", "gemma3": "Gemma 3"}
SHOWN_FADING = ("random steps", "forget gates", "selective RoPE")
DISTANCES = ("65-128", "129-256", "257-512", "1025-2048", "2049-4096")
SHOWN_TOPK = (("NoPE", 600), ("NoPE", 9_600), ("RoPE", 9_600), ("random steps", 9_600))
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
    rows = rows[rows.method != "logn"]
    rows = rows.assign(name=names_of(encodings_of(rows), rows.method))
    beside = order.grid()
    return pd.concat([rows, beside[beside.name.isin(BESIDE)]])


def across_budgets() -> Table:
    """Found and order beyond L after the shortest and the longest budget."""
    columns = order.by_step("found", FOUND, 600, 9_600) | order.by_step("order", ORDER, 600, 9_600)
    return order.by_budget(grid(), SHOWN, columns)


@cache
def fope_rows() -> pd.DataFrame:
    """Rows of FoPE and of RoPE that rotates the same pairs, with the rate of each run and whether
    tuning chose it."""
    rows, tried = rows_of("field/rows/fope"), read_choices(STUDY / "field/rows/fope")
    chosen = {row["run"].replace("-s0-", "-") for row in tried if row["chosen"]}
    return rows.assign(
        name=names_of(encodings_of(rows), rows.method),
        rate=rows.run.str.extract(r"-learning_rate=([\d.]+)")[0].astype(float),
        tuned=rows.run.str.replace(r"-s\d-", "-", regex=True).isin(chosen),
    )


def fope() -> Table:
    """FoPE and RoPE that rotates the same pairs at tuned rates, beside RoPE and PoPE."""
    rows = known(pd.concat([fope_rows().query("tuned"), grid()]))
    columns = order.by_step("found", FOUND, 600, 2_400) | order.by_step("order", ORDER, 600, 2_400)
    cell = partial(short, of=order.SEEDS)
    return table(rows, {name: {"name": name} for name in SHOWN_FOPE}, columns, cell=cell)


def mixtures() -> Table:
    """Both after the longer budget at the tuned rates of both."""
    rows, columns = known(selected(fope_rows(), {"step": 2_400})), {}
    for words, asked in {"found": FOUND, "order": ORDER}.items():
        columns |= {f"{words}, {rate}": asked | {"rate": rate} for rate in RATES}
    lines = {name: {"name": name} for name in ("FoPE", TURNED)}
    less = {"less": {"name": TURNED}, "cell": partial(short, sign="+")}
    lines["difference"] = {"name": "FoPE"} | less
    return table(rows, lines, columns, corner="rate:")


def differences() -> Table:
    """Differences in found and in order beyond L after the longest budget, paired by seed."""
    rows = known(grid())
    lines = {f"{one} less {other}": {"name": one, "less": {"name": other}} for one, other in PAIRS}
    rows, asked = rows[rows.step == BUDGETS[-1]], {"found": FOUND, "order": ORDER}
    cell = partial(short, sign="+", of=order.SEEDS)
    return table(rows, lines, asked, corner="after 9,600 steps", cell=cell)


@cache
def sharpened() -> pd.DataFrame:
    """Rows of topk.py: the method without top-k, and the keys that a query attends to."""
    rows = pd.read_csv(STUDY / "field/rows/topk.csv")
    parts = rows.method.str.extract(r"^(?:(none|yarn:8)|(?:(yarn:8)\+)?topk:k=(\d+))$")
    names = names_of(encodings_of(rows), parts[0].fillna(parts[1]).fillna("none"))
    return rows.assign(name=names, keys=parts[2].fillna("all"))


def topk() -> Table:
    """Found and order beyond L, and at L, with all keys and with those of the highest 8 logits."""
    rows = known(sharpened())
    lines = {f"{name}, {step:,}": {"name": name, "steps": step} for name, step in SHOWN_TOPK}
    columns, cell = {}, partial(short, of=order.SEEDS)
    for words, asked in (("found", FOUND), ("order", ORDER), ("at L", AT_L)):
        columns |= {f"{words}, {keys}": asked | {"keys": keys} for keys in ("all", "8")}
        if asked is not AT_L:
            less = {"keys": "8", "less": {"keys": "all"}, "cell": partial(cell, sign="+")}
            columns[f"{words}, 8 less all"] = asked | less
    return table(rows, lines, columns, corner="keys:", cell=cell)


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
    """Found by the distance to the setting in long rows, and that less what is found in short
    ones."""
    rows, lines, few, many = by_distance(), {}, {"length": FAR}, {"length": 8 * FAR}
    more = many | {"less": few, "cell": partial(short, sign="+")}
    for name in SHOWN_FADING:
        own = {"name": name}
        lines |= {name: own | many, f"{name}, less {FAR:,}": own | more}
    columns = {one: {"part": one} for one in DISTANCES}
    return table(rows, lines, columns, "found", corner=f"rows of {8 * FAR:,}")


def real_topk() -> Table:
    """What copies more than L back save SmolLM2 with all keys and with 32, each distance alike, on
    the books that all methods read."""
    rows = selected(real.copies(), {"length": 12_288})
    rows = rows[rows.back > real.L]
    rows = rows.assign(nats=rows.nats / rows.targets, targets=1)
    rows = rows[rows.document.isin(rows[rows.method == "topk:k=32"].document)]
    sums = rows.groupby(["method", "document", "read"])[["nats", "targets"]].sum().unstack("read")
    saved = pd.DataFrame(
        {"nats": sums.nats[False] - sums.nats[True], "targets": sums.targets[False]}
    )
    body = []
    for whole, sharp in (("none", "topk:k=32"), ("yarn:2", "yarn:2+topk:k=32")):
        columns = {
            "saved with all keys": {"method": whole},
            "32 less all": {"method": sharp, "less": {"method": whole}},
        }
        made = of_documents(saved.reset_index(), {whole: {}}, columns)
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
            f"{window} tokens, {'RoPE' if rope else 'no positions'}",
            {"rope": rope, "window": window},
        )
        for rope, window in rows.groupby(["rope", "window"]).groups
    ]
    columns = {
        "steps until 0.9": {"length": L, "value": "reached", "cell": fewest_to_most},
        "found beyond L": {"length": FAR},
    }
    return table(last, lines, columns, "found", corner="window, full layer")


def fewest_to_most(steps: Estimate) -> str:
    return " to ".join(f"{one:,.0f}" for one in sorted({min(steps.values), max(steps.values)}))


def riffled() -> Table:
    """The price that another book adds to SmolLM2, that of a reader of the last block, and their
    difference: what its own earlier blocks save."""
    alone, price, null = ({"part": part} for part in ("alone", "riffled", "foreign"))
    columns = {
        "price": price | {"less": alone},
        "null": null | {"less": alone},
        "saved": null | {"less": price},
    }
    lines = {method: {"method": method} for method in ("none", "yarn:2", "self_extend")}
    return of_documents(real.of_protocol("riffle"), lines, columns)


def items() -> Table:
    """The share of eight items that are named right, by their place in the row."""
    columns = {
        "at L": {"evaluation": "at_L", "length": L, "method": "none"},
        **{
            words: {"evaluation": "held-out", "length": FAR, "method": method}
            for method, words in ITEM_METHODS.items()
        },
    }
    columns["log-n, more"] = columns["log-n"] | {"less": columns["8 L"]}
    rows = rows_of("field/rows/items")
    lines = {name: {"encoding": encoding} for encoding, name in ITEM_ENCODINGS.items()}
    made = table(rows[rows.protocol == "answers"], lines, columns, "accuracy")
    guess = np.mean(1 / np.arange(1, kth.ITEMS + 1))  # among the letters not named yet
    made.rows.append(["a guess among those left", *[f"{guess:.2f}"] * 2, *[""] * 5])
    return made


def listed() -> Table:
    """The share of lists of which the first word, and of which a later one is named right."""
    rows, body = pd.read_csv(STUDY / "field/rows/list.csv"), []
    for (model, form), own in rows.groupby(["model", "form"], sort=False):
        parts = own[own.k == 1], own[own.k > 1]
        shares = [f"{part.right.sum() / part.lists.sum():.2f}" for part in parts]
        body.append([f"{MODELS[model]}, {form}", *shares])
    return Table("", ["", "first", "second to eighth"], body)


TABLES = {
    "budget": across_budgets,
    "fope": fope,
    "mixtures": mixtures,
    "items": items,
    "list": listed,
    "differences": differences,
    "topk": topk,
    "real-topk": real_topk,
    "fade": fade,
    "lazy": lazy,
    "riffle": riffled,
}
