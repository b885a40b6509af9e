"""Tables of the page on positions that depend on content."""

from functools import cache, partial

import pandas as pd

from study.cells import STUDY, markdown, seeds, with_interval
from study.order.tables import FAR, L, at, ordered, reach_and_order

TUNED, UNIFORM, ON_TEXT = (f"content/rows/{name}" for name in ("sweep", "uniform", "text"))


def seeds_of_content(sweep: str) -> str:
    """Accuracy at L, reach and the last of two, of each run."""
    rows = ordered(sweep)
    rows, body = rows[rows.method == "none"], []
    for (group, seed), own in rows.groupby(["group", "seed"]):
        near = at(own, "answers", L)
        others = [
            at(own, "latest", L, "all"),
            at(own, "reach", FAR),
            at(own, "latest", FAR, "all"),
        ]
        values = near.accuracy / near.ceiling, *(one.accuracy for one in others)
        body.append([group, f"{seed}", *(f"{value.item():.3f}" for value in values)])
    head = ["", "seed", "all at L", "last of two at L", "reach at 8 L", "last of two at 8 L"]
    return markdown(head, body)


def changes_by_logn() -> str:
    """Change by log-n scaling at 8 L, by seed."""
    rows, body = ordered(TUNED), []
    for group, own in rows.groupby("group"):
        plain, scaled = own[own.method == "none"], own[own.method == "logn"]
        if scaled.empty:
            continue
        measures = ("reach", FAR), ("latest", FAR, "all")
        changes = [seeds(at(scaled, *one)) - seeds(at(plain, *one)) for one in measures]
        body.append([group, *map(with_interval, changes)])
    return markdown(["log-n less none at 8 L", "reach", "last of two"], body)


def rates_of_content(sweep: str) -> str:
    """The rates that were tried, with the loss at L on a third split."""
    tried = pd.read_csv(STUDY / sweep / "choices.csv")
    body = [
        [
            row.scheme.removeprefix("ordered-"),
            f"{row.learning_rate:g}",
            f"{row.encoding_rate:g}",
            f"{row.choose_loss:.3g}",
            "yes" if row.chosen == "yes" else "",
        ]
        for row in tried.itertuples()
    ]
    return markdown(["", "learning rate", "encoding rate", "loss at L", "chosen"], body)


@cache
def on_text() -> pd.DataFrame:
    """Rows of `same_token` on source code without extensions, beside three of the fair zoo."""
    files = [STUDY / sweep / "rows.csv.xz" for sweep in (ON_TEXT, "text/rows/sweep")]
    own, fair = (pd.read_csv(file, low_memory=False) for file in files)
    rows = pd.concat([own, fair[fair.encoding.isin(["rope", "fire", "fox"])]])
    return rows[(rows.protocol == "same_token") & (rows.extension == "none")]


def of_content_on_text() -> str:
    """Bits per byte by length, and of a window of L."""
    body = []
    for name, own in on_text().groupby("encoding"):
        whole, window = own[own.window.isna()], own[(own.window == 128) & (own.length == 1_024)]
        bits = [seeds(whole[whole.length == n], "bpb") for n in (128, 256, 512, 1_024)]
        values = [*bits, seeds(window, "bpb"), bits[-1] - bits[0]]
        body.append((bits[-1].mean(), [name, *map(with_interval, values), str(len(bits[0]))]))
    head = ["", "128", "256", "512", "1,024", "1,024 in a window of 128", "1,024 less 128", "seeds"]
    return markdown(head, [row for _, row in sorted(body)])


def differences_on_text() -> str:
    """Differences in bits from RoPE and forget gates, by seed."""
    rows = on_text()
    bits = rows[rows.window.isna()].set_index(["length", "encoding", "seed"]).bpb.sort_index()
    pairs = ((128, "rope"), (128, "fox"), (1_024, "fox"))
    body = []
    for name in bits.index.unique("encoding").drop(["rope", "fire", "fox"]):
        less_than = [(bits[n, name] - bits[n, other]).dropna() for n, other in pairs]
        body.append([name, *(with_interval(values.to_numpy()) for values in less_than)])
    return markdown(["", *(f"less {other} at {n:,}" for n, other in pairs)], body)


TABLES = {
    "content": partial(reach_and_order, TUNED),
    "content-logn": changes_by_logn,
    "content-uniform": partial(reach_and_order, UNIFORM),
    "content-text": of_content_on_text,
    "content-text-less": differences_on_text,
    "content-seeds": partial(seeds_of_content, TUNED),
    "content-uniform-seeds": partial(seeds_of_content, UNIFORM),
    "content-rates": partial(rates_of_content, TUNED),
    "content-rates-text": partial(rates_of_content, ON_TEXT),
}
