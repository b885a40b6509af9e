"""Tables of the page on order."""

from functools import cache

import numpy as np
import pandas as pd

from study.cells import STUDY, half, markdown, seeds, short
from study.order.flips import flips

L, FAR = 64, 512
BUDGETS = (600, 1_200, 2_400, 4_800, 9_600)
SEEDS = 5  # of the methods that the decision rule compares
PAIRS_OF_BUDGETS = ((1_200, 9_600), (600, 2_400))  # the first decides
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
APART = ("1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256")
SEPARATED = 4_800  # steps; later two seeds of RoPE change
NOTHING, OLDER = "nothing", "older setting from the last"


def names_of(encodings: pd.Series, methods: pd.Series) -> list[str]:
    """Names of encodings, as people write them, with their methods."""
    return [
        name if method == "none" else f"{name} with {EXTENSIONS[method]}"
        for name, method in zip(encodings, methods, strict=True)
    ]


def published(sweep: str) -> pd.DataFrame:
    """Rows of a sweep of budgets, with the steps of the run."""
    rows = pd.read_csv(STUDY / sweep / "rows.csv.xz", low_memory=False)
    return rows.assign(steps=rows.run.str.extract(r"steps=(\d+)")[0].astype(int))


@cache
def grid() -> pd.DataFrame:
    """Rows of the grid, with the name of the method."""
    rows = published("order/rows/budget")
    rows = rows.assign(name=names_of(rows.encoding.map(ENCODINGS), rows.method))
    return rows[~rows.name.isin(ALIKE)]


def measured(
    rows: pd.DataFrame, protocol: str, part: str = "beyond", length: int = FAR
) -> pd.DataFrame:
    """Rows of a part, all that lies beyond L by default."""
    return rows[(rows.protocol == protocol) & (rows.part == part) & (rows.length == length)]


def orders(rows: pd.DataFrame, part: str = "beyond") -> pd.DataFrame:
    """Order beyond L, where enough pairs are held."""
    return measured(rows, "last_of_two", part).dropna(subset=["order"])


def by_budget(rows: pd.DataFrame) -> str:
    """Found and order beyond L at every budget, the best order after 1,200 steps first."""
    body = []
    found, order = measured(rows, "found"), orders(rows)
    at_L = measured(rows, "last_of_two", "within", L)
    at_L = at_L[at_L.steps == BUDGETS[0]]
    for name, own in found.groupby("name"):
        ends = [seeds(own[own.steps == steps], "found") for steps in (600, 9_600)]
        ends.append(seeds(at_L[at_L.name == name], "accuracy"))
        ordered = order[order.name == name]
        by_steps = [seeds(ordered[ordered.steps == steps], "order") for steps in BUDGETS]
        rank = by_steps[1].mean() if len(by_steps[1]) else 0.0
        of = own.seed.nunique()
        cells = [short(one, of=of) for one in (*ends, *by_steps)]
        body.append((rank, [str(name), *cells, str(of)]))
    head = ["", "found, 600", "found, 9,600", "order at L, 600"]
    head += [*(f"order, {steps:,}" for steps in BUDGETS), "seeds"]
    return markdown(head, [line for _, line in sorted(body, key=lambda one: -one[0])])


def that_flip() -> str:
    """The pairs that change places between two budgets."""
    order, body = orders(grid()).rename(columns={"method": "extension", "name": "method"}), []
    order = order[order.groupby("method").seed.transform("nunique") == SEEDS]
    for budgets in PAIRS_OF_BUDGETS:
        for pair in flips(order, list(budgets)):
            at = {pair.ahead: pair.gained, pair.behind: pair.lost}
            differences = [f"{at[steps]:+.2f} at {steps:,}" for steps in budgets]
            body.append([f"{pair.one} less {pair.other}", *differences])
    return markdown(["order beyond L", "first", "then"], body)


@cache
def knocked_out() -> pd.DataFrame:
    rows = pd.read_csv(STUDY / "order/rows/knockout.csv").dropna(subset=["order"])
    return rows.assign(name=names_of(rows.encoding.map(ENCODINGS), rows.extension))


def knock_outs() -> str:
    """Order as it is and with keys hidden, where there is order to lose."""
    body = []
    rows = knocked_out()
    shown = (rows.extension == "none") | ((rows.extension == "yarn:8") & (rows.length == FAR))
    for (name, length, steps), own in rows[shown].groupby(["name", "length", "steps"]):
        parts = own.groupby("hidden", sort=False)
        hidden = [short(seeds(one, "order")) for _, one in parts]
        as_it_is = seeds(own[own.hidden == NOTHING], "order")
        if len(as_it_is) > 1 and as_it_is.mean() > 0.6:
            cells = [f"{name}, {length} tokens", f"{steps:,}", *hidden]
            body.append([*cells, str(len(as_it_is))])
    return markdown(["hidden:", "steps", *rows.hidden.unique(), "seeds"], body)


def separated(rows: pd.DataFrame) -> dict[str, list[np.ndarray]]:
    """Order of each seed by the tokens between the two settings, where every class has some; the
    best method first."""
    parts = [orders(rows, f"apart-{apart}") for apart in APART]
    parts = [part[part.steps == SEPARATED] for part in parts]
    order = orders(rows)
    all_apart = order[order.steps == SEPARATED].groupby("name").order.mean()
    names = all_apart.sort_values(ascending=False).index
    found = {name: [seeds(part[part.name == name], "order") for part in parts] for name in names}
    return {name: own for name, own in found.items() if all(map(len, own))}


def by_separation(rows: pd.DataFrame) -> str:
    """Order beyond L by the tokens between the two settings, and the widest half interval."""
    body = []
    for name, by_apart in separated(rows).items():
        widest = f"{max(map(half, by_apart)):.2f}" if len(by_apart[0]) > 1 else "one seed"
        body.append([name, *(f"{own.mean():.2f}" for own in by_apart), widest])
    return markdown(["tokens apart", *APART, "± at most"], body)


def by_seed() -> str:
    """RoPE with YaRN by seed: adjacent settings, and what hiding the older setting takes."""
    rows, name = knocked_out(), "RoPE with YaRN"
    rows = rows[(rows.name == name) & (rows.length == FAR) & (rows.steps == BUDGETS[-1])]
    wide = rows.pivot_table("order", "seed", "hidden")[[NOTHING, OLDER]]
    adjacent = orders(grid(), "apart-1")
    adjacent = adjacent[adjacent.name == name].pivot_table("order", "seed", "steps")
    wide = adjacent[[600, 4_800, 9_600]].join(wide)
    body = [[str(seed), *(f"{value:.2f}" for value in row)] for seed, row in wide.iterrows()]
    head = [f"adjacent, {steps:,}" for steps in (600, 4_800, 9_600)]
    return markdown(["seed", *head, "all, 9,600", "all, older setting hidden"], body)


TABLES = {
    "budget": lambda: by_budget(grid()),
    "flips": that_flip,
    "apart": lambda: by_separation(grid()),
    "knockout": knock_outs,
    "seeds": by_seed,
}
