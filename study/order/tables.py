"""Tables of the page on order."""

from collections.abc import Collection
from functools import cache, partial

import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate, estimates, selected
from study.cells import STUDY, half, plain, rows_of, short, table
from study.order.flips import flips

L, FAR = 64, 512
BUDGETS = (600, 1_200, 2_400, 4_800, 9_600)
SEEDS = 5  # of the methods that the decision rule compares
DECIDE, EARLY = (1_200, 9_600), (600, 2_400)  # pairs of budgets
ENCODINGS = {
    "rope": "RoPE",
    "nope": "NoPE",
    "fire": "FIRE",
    "fox": "forget gates",
    "alibi": "ALiBi",
    "t5": "T5 bias",
    "cope": "CoPE",
}
EXTENSIONS = {
    "yarn:8": "YaRN",
    "dynamic_yarn": "dynamic YaRN",
    "ntk_by_parts:8": "NTK by parts",
    "pi:8": "PI",
    "dca": "DCA",
    "logn": "log-n",
    "self_extend:window=4": "Self-Extend, window 4",
    "self_extend:window=8": "Self-Extend, window 8",
    "self_extend:window=16": "Self-Extend, window 16",
}
ALIKE = ("RoPE with dynamic YaRN", "RoPE with log-n")  # at 8 L the same as YaRN by 8 and as none
SHOWN = (  # by budget: the encodings, and of their methods those of the page's answer
    "RoPE",
    "RoPE with YaRN",
    "RoPE with PI",
    "RoPE with Self-Extend, window 4",
    "NoPE",
    "NoPE with log-n",
    "FIRE",
    "forget gates",
    "T5 bias",
    "CoPE",
)
SHOWN_APART = (  # by separation: of the answer, and what the law predicts
    "NoPE",
    "FIRE",
    "RoPE with YaRN",
    "RoPE with DCA",
    "RoPE with Self-Extend, window 4",
    "RoPE with Self-Extend, window 16",
)
APART = ("1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256")
SEPARATED = 4_800  # steps; later two seeds of RoPE change
NOTHING, OLDER = "nothing", "older setting from the last"
AGAIN = "nothing, trained again"
# Of all that lies beyond L, and of what lies within.
FOUND = {"protocol": "found", "part": "beyond", "length": FAR, "value": "found"}
ORDER = {"protocol": "last_of_two", "part": "beyond", "length": FAR, "value": "order"}
AT_L = {"protocol": "last_of_two", "part": "within", "length": L, "value": "accuracy"}
AGAIN_SHOWN = (
    ("RoPE", FOUND),
    ("RoPE with YaRN", ORDER),
)
BY_SEPARATION = {apart: ORDER | {"part": f"apart-{apart}"} for apart in APART}


def names_of(encodings: pd.Series, methods: pd.Series) -> list[str]:
    """Names of encodings, as people write them, with their methods."""
    return [
        name if method == "none" else f"{name} with {EXTENSIONS[method]}"
        for name, method in zip(encodings, methods, strict=True)
    ]


def known(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows without those of order for which too few pairs are held."""
    return rows[(rows.protocol != "last_of_two") | (rows.part == "within") | rows.order.notna()]


@cache
def grid() -> pd.DataFrame:
    """Rows of the grid, with the name of the method."""
    rows = rows_of("order/rows/budget")
    rows = rows.assign(name=names_of(rows.encoding.map(ENCODINGS), rows.method))
    return rows[~rows.name.isin(ALIKE)]


def by_step(words: str, asked: dict, *steps: int) -> dict[str, dict]:
    """Columns of one measure, by budget."""
    return {f"{words}, {step:,}": asked | {"step": step} for step in steps}


def by_budget(rows: pd.DataFrame, shown: Collection[str], columns: dict[str, dict]) -> Table:
    """Methods by budget, the best order after 1,200 steps first."""
    rows = known(rows[rows.name.isin(shown)])
    seeds = selected(rows, FOUND).groupby("name").seed.nunique()
    best = selected(rows, ORDER | {"step": BUDGETS[1]}).groupby("name").order.mean()
    best = best.reindex(seeds.index, fill_value=0.0).sort_values(ascending=False, kind="stable")
    lines = {n: {"name": n, "cell": partial(short, of=seeds[n])} for n in best.index}
    return table(rows, lines, columns)


def across_budgets() -> Table:
    """Found and order beyond L, and order at L after the shortest budget."""
    columns = by_step("found", FOUND, 600, 9_600) | by_step("order at L", AT_L, 600)
    columns |= by_step("order", ORDER, 600, 1_200, 9_600)
    return by_budget(grid(), SHOWN, columns)


def that_flip() -> Table:
    """The pairs that change places between the early budgets; between those that decide none."""
    order, body = selected(known(grid()), ORDER).drop(columns="method"), []
    order = order.rename(columns={"name": "method", "step": "steps"})
    order = order[order.groupby("method").seed.transform("nunique") == SEEDS]
    assert flips(order, list(DECIDE)) == []
    for pair in flips(order, list(EARLY)):
        at = {pair.ahead: pair.gained, pair.behind: pair.lost}
        names = f"{pair.one} less {pair.other}".replace("RoPE with ", "")
        body.append([names, *(f"{at[steps]:+.2f}" for steps in EARLY)])
    return Table("", ["order beyond L", *(f"{steps:,}" for steps in EARLY)], body)


@cache
def knocked_out() -> pd.DataFrame:
    rows = pd.read_csv(STUDY / "order/rows/knockout.csv").dropna(subset=["order"])
    rows = rows.rename(columns={"steps": "step"})
    return rows.assign(name=names_of(rows.encoding.map(ENCODINGS), rows.extension))


def knock_outs() -> Table:
    """Order as it is and with the older setting hidden, after the shortest and the longest budget,
    where there is order to lose."""
    rows = knocked_out()
    rows = rows[(rows.extension == "none") | (rows.extension == "yarn:8") & (rows.length == FAR)]
    last = rows[(rows.hidden == NOTHING) & (rows.step == BUDGETS[-1])]
    last = last.groupby(["name", "length"]).order.agg(["mean", "count"])
    shown = last[(last["count"] > 1) & (last["mean"] > 0.6)]["count"]
    shown = shown.drop([("NoPE", L), ("FIRE", L)])  # as beyond L
    lines = [
        (
            f"{name}, {length} tokens",
            {"name": name, "length": length, "cell": partial(short, of=seeds)},
        )
        for (name, length), seeds in shown.items()
    ]
    columns = {
        f"{step:,}, {words}": {"step": step, "hidden": hidden}
        for step in (600, 9_600)
        for words, hidden in (("as it is", NOTHING), ("hidden", OLDER))
    }
    return table(rows, lines, columns, "order")


def separated(rows: pd.DataFrame) -> dict[str, list[Estimate]]:
    """Order by the tokens between the two settings, where every class has some; the best method
    first."""
    rows = known(rows[rows.step == SEPARATED])
    best = selected(rows, ORDER).groupby("name").order.mean().sort_values(ascending=False)
    columns = list(BY_SEPARATION.values())
    found = {name: estimates(rows, {"name": name}, columns, "order") for name in best.index}
    return {name: own for name, own in found.items() if all(own)}


def by_separation() -> Table:
    """Order beyond L by the tokens between the two settings, and the widest half interval."""
    rows, body = grid(), []
    for name, own in separated(rows[rows.name.isin(SHOWN_APART)]).items():
        worst = f"{max(map(half, own)):.2f}"
        body.append([name.removeprefix("RoPE with "), *map(plain, own), worst])
    return Table("", ["tokens apart", *APART, "± at most"], body)


@cache
def again() -> pd.DataFrame:
    """The same seeds trained again, for the page on the encodings of 2026."""
    rows = pd.read_csv(STUDY / "field/rows/topk.csv").rename(columns={"steps": "step"})
    rows = rows[rows.method.isin(("none", "yarn:8"))]
    names = rows.run.str.extract(r"^ordered-(\w+?)-s\d")[0].map(ENCODINGS)
    return rows.assign(name=names_of(names, rows.method))


def of_both() -> Table:
    """What both trainings of the same five seeds have, and all ten runs."""
    trainings = {"first": known(grid()), "again": known(again())}
    apart = [rows.assign(seed=rows.seed + 100 * n) for n, rows in enumerate(trainings.values())]
    trainings["both"] = pd.concat(apart)  # ten runs
    rows = pd.concat(rows.assign(training=name) for name, rows in trainings.items())
    lines = {
        f"{name}, {measure['value']}, {step:,}": {"name": name, "step": step} | measure
        for name, measure in AGAIN_SHOWN
        for step in (600, 9_600)
    }
    return table(rows, lines, {name: {"training": name} for name in trainings})


def by_seed() -> Table:
    """RoPE with YaRN by seed: adjacent settings, what hiding the older setting takes, and the same
    seeds trained again (the page on the encodings of 2026)."""
    rows = pd.concat([grid(), knocked_out()])
    rows = rows[rows.name == "RoPE with YaRN"]
    trained = again()[again().name == "RoPE with YaRN"]
    rows = pd.concat([rows, trained.assign(hidden=AGAIN)])
    last = {"length": FAR, "step": BUDGETS[-1]}
    columns = {"adjacent, 9,600": BY_SEPARATION["1"] | last}
    for words, hidden in (("all", NOTHING), ("hidden", OLDER)):
        columns |= by_step(words, {"length": FAR, "hidden": hidden}, 2_400, 9_600)
    columns["trained again"] = ORDER | last | {"hidden": AGAIN}
    return table(rows, "seed", columns, "order", corner="seed", cell=plain)


TABLES = {
    "budget": across_budgets,
    "flips": that_flip,
    "apart": by_separation,
    "knockout": knock_outs,
    "seeds": by_seed,
    "again": of_both,
}
