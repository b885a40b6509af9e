"""Tables of the page on order."""

from functools import cache

import numpy as np
import pandas as pd

from study.cells import STUDY, markdown, seeds, with_interval

L, FAR = 64, 512
OF_ROPE = ("pi:8", "ntk_by_parts:8", "yarn:8", "dynamic_yarn", "self_extend", "dca")
ALONE = ("rope", "randomized", "hybrid_nope")  # log-n changes none of these by 0.05
SHOWN = [
    ("rope", "none"),
    ("rope", "pi:8"),
    ("rope", "yarn:8"),
    ("rope", "self_extend"),
    ("randomized", "none"),
    ("fire", "none"),
    ("t5", "none"),
    ("nope", "none"),
    ("nope", "logn"),
    ("sinusoidal", "logn"),
    ("fox", "none"),
]
BUDGETS = {  # the runs, and their L
    "1,200 steps": (r"^ordered-[a-z0-9]+-s\d+$", L),
    "4,800 steps": (r"steps=4800", L),
    "4 layers, width 256": (r"layers=4", L),
    "L = 96": (r"-L96$", 96),
}
TRUNKS = (600, 1_200, 2_400, 4_800, 9_600)  # steps
BY_BUDGET = [
    ("rope", "none"),
    ("rope", "yarn:8"),
    ("rope", "self_extend"),
    ("nope", "none"),
    ("nope", "logn"),
    ("fire", "none"),
    ("t5", "none"),
]


@cache
def ordered(sweep: str = "order/rows/sweep") -> pd.DataFrame:
    """Rows of a sweep of reach and order, the oracles named."""
    rows = pd.read_csv(STUDY / sweep / "rows.csv.xz", low_memory=False)
    encoding = rows.run.str.extract(r"^ordered-(.*?)-s\d+")[0]
    oracle = np.where(rows.train_length == FAR, " trained at 512", "")
    return rows.assign(group=encoding + oracle)


def at(rows: pd.DataFrame, protocol: str, length: int, part: str | None = None) -> pd.DataFrame:
    chosen = (rows.protocol == protocol) & (rows.length == length)
    return rows[chosen if part is None else chosen & (rows.part == part)]


def name_of(group: str, method: str) -> str:
    return {"none": group, "window": f"{group}, window of L"}.get(method, f"{group} + {method}")


def reach_and_order(sweep: str = "order/rows/sweep") -> str:
    """Encodings and what matters of their extensions, the best at both first."""
    rows = ordered(sweep)
    ceiling = at(rows, "reach", L).ceiling.iloc[0]
    body = []
    for (group, method), own in rows.groupby(["group", "method"]):
        if "trained at" in group:
            continue
        log_n = method == "logn" and group not in ALONE
        extended = (group == "rope" and method in OF_ROPE) or (group, method) == (
            "randomized",
            "yarn:2",
        )
        if not (method == "none" or log_n or extended):
            continue
        near = [at(own, "reach", L), at(own, "latest", L, "all")]
        far = [at(own, "reach", FAR), at(own, "latest", FAR, "all"), at(own, "answers", FAR)]
        values = [seeds(near[0]) / ceiling, *(seeds(one) for one in (near[1], *far))]
        rank = min(values[2].mean(), 2 * values[3].mean() - 1)
        body.append((rank, [name_of(group, method), *map(with_interval, values)]))
    window = rows[(rows.method == "window") & (rows.train_length == L)]
    far = [at(window, "reach", FAR), at(window, "latest", FAR, "all"), at(window, "answers", FAR)]
    body.append(
        (-1.0, ["windows of L (mean)", "", "", *(f"{one.accuracy.mean():.3f}" for one in far)])
    )
    orderless = f"{at(rows, 'answers', FAR).orderless.mean():.3f}"
    body.append((-2.0, ["a reader without order", "1.000", "0.500", "1.000", "0.500", orderless]))
    head = [
        "",
        "reach at L",
        "last of two at L",
        "reach at 8 L",
        "last of two at 8 L",
        "all at 8 L",
    ]
    return markdown(head, [line for _, line in sorted(body, key=lambda one: -one[0])])


def by_older() -> str:
    """Accuracy at L and 8 L by the number of older settings."""
    rows = ordered()
    body = []
    for group, method in SHOWN:
        own = rows[(rows.group == group) & (rows.method == method)]
        cells = [
            f"{seeds(at(own, 'older', n, str(k))).mean():.2f}" for n in (L, FAR) for k in range(4)
        ]
        body.append([name_of(group, method), *cells])
    body.append(["a reader without order", *(["1.00", "0.50", "0.33", "0.25"] * 2)])
    head = ["", *(f"{k} at L" for k in range(4)), *(f"{k} at 8 L" for k in range(4))]
    return markdown(head, body)


def by_separation() -> str:
    """The last of two settings, by the tokens between them, at L and at 8 L."""
    rows = ordered()
    parts = [part for part in rows[rows.protocol == "latest"].part.unique() if part != "all"]
    parts.sort(key=lambda part: int(part.partition("-")[0]))
    body = []
    for length in (L, FAR):
        there = rows[rows.length == length]
        for group, method in SHOWN:
            own = there[(there.group == group) & (there.method == method)]
            found = [at(own, "latest", length, part) for part in parts]
            cells = [f"{seeds(one).mean():.2f}" if len(one) else "" for one in found]
            body.append([f"{name_of(group, method)}, {length}", *cells])
    return markdown(["", *parts], body)


def by_scale() -> str:
    """YaRN's reach and order by its scale and the length."""
    rows = ordered()
    body = []
    for scale in (2, 4, 8, 16):
        own = rows[(rows.group == "rope") & (rows.method == f"yarn:{scale}")]
        lengths = (L, 128, 256, FAR)
        reach = [at(own, "reach", n) for n in lengths]
        cells = [f"{(seeds(one) / one.ceiling.iloc[0]).mean():.2f}" for one in reach]
        cells += [f"{seeds(at(own, 'latest', n, 'all')).mean():.2f}" for n in lengths]
        body.append([f"yarn:{scale}", *cells])
    head = [""] + [f"reach, {n}" for n in (L, 128, 256, FAR)]
    return markdown(head + [f"last of two, {n}" for n in (L, 128, 256, FAR)], body)


def of_oracles() -> str:
    """Reach and order at 512 tokens of models trained there, on as many tokens."""
    rows = ordered()
    rows = rows[rows.group.str.contains("trained at") & (rows.method == "none")]
    body = []
    for group, own in rows.groupby("group"):
        found = [at(own, "reach", FAR), at(own, "latest", FAR, "all")]
        found += [at(own, "latest", FAR, part) for part in ("5-8", "65-128", "257-512")]
        body.append([group, *(with_interval(seeds(one)) for one in found)])
    head = ["", "reach", "last of two", "separation 5-8", "65-128", "257-512"]
    return markdown(head, body)


def after_finetuning() -> str:
    """Reach and order at 8 L by the share of steps that a run was fine-tuned for."""
    before, rows = ordered(), pd.read_csv(STUDY / "order/rows/finetune/rows.csv.xz")
    rows["steps"] = rows.run.str.extract(r"steps=(\d+)")[0].astype(int)
    source = rows.run.str.extract(r"ordered-(rope|fire)-s")[0]
    yarn = rows.run.str.contains("name=yarn")
    rows["kind"] = source + np.where(yarn, " with yarn:8 in place", "")
    rows.loc[rows.run.str.startswith("randomized"), "kind"] = "rope, randomized yarn:8 at L"
    kinds = {
        "rope": ("rope", "none"),
        "rope with yarn:8 in place": ("rope", "yarn:8"),
        "rope, randomized yarn:8 at L": ("rope", "yarn:8"),
        "fire": ("fire", "none"),
    }
    body = []
    for kind, (group, method) in kinds.items():
        start = before[(before.group == group) & (before.method == method)]
        own = rows[(rows.kind == kind) & (rows.method == "none")]
        stages = [start, *(own[own.steps == steps] for steps in (24, 60, 240))]
        cells = [with_interval(seeds(at(one, "reach", FAR))) for one in stages]
        cells += [with_interval(seeds(at(one, "latest", FAR, "all"))) for one in stages]
        body.append([kind, *cells])
    shares = ("before", "2%", "5%", "20%")
    head = ["", *(f"reach, {share}" for share in shares)]
    return markdown([*head, *(f"last of two, {share}" for share in shares)], body)


def by_budget() -> str:
    """Reach and order of four encodings after more steps, in larger models, and at another L."""
    rows, body = pd.concat([ordered(), ordered("order/rows/sizes")]), []
    for group, method in BY_BUDGET:
        for budget, (pattern, trained) in BUDGETS.items():
            chosen = (rows.group == group) & (rows.method == method)
            own = rows[chosen & rows.run.str.contains(pattern)]
            far = 8 * trained
            reach = seeds(at(own, "reach", far)) / at(own, "reach", far).ceiling.iloc[0]
            order = [seeds(at(own, "latest", length, "all")) for length in (trained, far)]
            values = [with_interval(one) for one in (reach, *order)]
            body.append([name_of(group, method), budget, *values, str(len(reach))])
    head = ["", "trained", "reach at 8 L", "last of two at L", "last of two at 8 L", "seeds"]
    return markdown(head, body)


def beyond() -> str:
    """Found and order beyond L at five budgets, the best order after 1,200 steps first."""
    rows = pd.read_csv(STUDY / "order/rows/budget/rows.csv.xz", low_memory=False)
    rows = rows[(rows.length == FAR) & (rows.part == "beyond")]
    rows["steps"] = rows.run.str.extract(r"steps=(\d+)")[0].astype(int)
    body = []
    for (encoding, method), own in rows.groupby(["encoding", "method"]):
        found, order = (own[own.protocol == one] for one in ("found", "last_of_two"))
        order = order.dropna(subset=["order"])  # where enough pairs are held
        ends = [seeds(found[found.steps == steps], "found") for steps in (600, 9_600)]
        by_steps = [seeds(order[order.steps == steps], "order") for steps in TRUNKS]
        counts = f"{min(map(len, by_steps))} to {max(map(len, by_steps))}"
        cells = [name_of(encoding, method), *map(with_interval, [*ends, *by_steps]), counts]
        body.append((by_steps[1].mean(), cells))
    head = ["", "found, 600", "found, 9,600", *(f"order, {steps:,}" for steps in TRUNKS), "seeds"]
    return markdown(head, [line for _, line in sorted(body, key=lambda one: -one[0])])


TABLES = {
    "beyond": beyond,
    "reach-and-order": reach_and_order,
    "older": by_older,
    "separation": by_separation,
    "scale": by_scale,
    "oracles": of_oracles,
    "finetuning": after_finetuning,
    "budget": by_budget,
}
