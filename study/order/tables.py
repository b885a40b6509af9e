"""Tables of the page on order."""

from functools import cache

import pandas as pd

from study.cells import STUDY, markdown, seeds, short
from study.order.flips import flips

L, FAR = 64, 512
BUDGETS = (600, 1_200, 2_400, 4_800, 9_600)
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
NOTHING, OLDER = "nothing", "older setting from the last"


def name_of(encoding: str, method: str) -> str:
    name = ENCODINGS[encoding]
    return name if method == "none" else f"{name} with {EXTENSIONS[method]}"


@cache
def measured() -> pd.DataFrame:
    """Rows beyond L of the grid, with the name of the method and the steps of the run."""
    rows = pd.read_csv(STUDY / "order/rows/budget/rows.csv.xz", low_memory=False)
    rows = rows[(rows.length == FAR) & (rows.part == "beyond")]
    names = [name_of(*pair) for pair in zip(rows.encoding, rows.method, strict=True)]
    return rows.assign(steps=rows.run.str.extract(r"steps=(\d+)")[0].astype(int), name=names)


def orders() -> pd.DataFrame:
    """Order beyond L, where enough pairs are held."""
    rows = measured()
    return rows[rows.protocol == "last_of_two"].dropna(subset=["order"])


def by_budget() -> str:
    """Found and order beyond L at every budget, the best order after 1,200 steps first."""
    found, order = measured()[measured().protocol == "found"], orders()
    body = []
    for name, own in found[~found.name.isin(ALIKE)].groupby("name"):
        ends = [seeds(own[own.steps == steps], "found") for steps in (600, 9_600)]
        ordered = order[order.name == name]
        by_steps = [seeds(ordered[ordered.steps == steps], "order") for steps in BUDGETS]
        rank = by_steps[1].mean() if len(by_steps[1]) else 0.0
        cells = [str(name), *map(short, [*ends, *by_steps]), str(own.seed.nunique())]
        body.append((rank, cells))
    head = ["", "found, 600", "found, 9,600", *(f"order, {steps:,}" for steps in BUDGETS), "seeds"]
    return markdown(head, [line for _, line in sorted(body, key=lambda one: -one[0])])


def that_flip() -> str:
    """The pairs that change places between two budgets."""
    order, body = orders().rename(columns={"method": "extension", "name": "method"}), []
    for budgets in PAIRS_OF_BUDGETS:
        for pair in flips(order, list(budgets)):
            at = {pair.ahead: pair.gained, pair.behind: pair.lost}
            differences = [f"{at[steps]:+.2f} at {steps:,}" for steps in budgets]
            body.append([f"{pair.one} less {pair.other}", *differences])
    return markdown(["order beyond L", "first", "then"], body)


@cache
def knocked_out() -> pd.DataFrame:
    rows = pd.read_csv(STUDY / "order/rows/knockout.csv").dropna(subset=["order"])
    names = [name_of(*pair) for pair in zip(rows.encoding, rows.extension, strict=True)]
    return rows.assign(name=names)


def knock_outs() -> str:
    """Order as it is and with keys hidden, where there is order to lose."""
    body = []
    rows = knocked_out()
    shown = (rows.extension == "none") | ((rows.extension == "yarn:8") & (rows.length == FAR))
    for (name, length, steps), own in rows[shown].groupby(["name", "length", "steps"]):
        parts = own.groupby("hidden", sort=False)
        hidden = [short(seeds(one, "order")) for _, one in parts]
        if seeds(own[own.hidden == NOTHING], "order").mean() > 0.6:
            cells = [f"{name}, {length} tokens", f"{steps:,}", *hidden]
            body.append([*cells, str(own.seed.nunique())])
    return markdown(["hidden:", "steps", *rows.hidden.unique(), "seeds"], body)


def by_seed() -> str:
    """What hiding the older setting takes from every seed of RoPE with YaRN, after all steps."""
    rows = knocked_out()
    rows = rows[(rows.name == "RoPE with YaRN") & (rows.length == FAR)]
    wide = rows[rows.steps == BUDGETS[-1]].pivot_table("order", "seed", "hidden")
    body = [
        [str(seed), f"{row[NOTHING]:.2f}", f"{row[OLDER]:.2f}"] for seed, row in wide.iterrows()
    ]
    return markdown(["seed", "order", "older setting hidden"], body)


TABLES = {"budget": by_budget, "flips": that_flip, "knockout": knock_outs, "seeds": by_seed}
