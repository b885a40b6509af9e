"""The tables of the pages in this folder, from the published rows: python docs/results/tables.py

A table of a page stands between `<!-- table NAME -->` and `<!-- end -->`; this writes it there.
tests/unit/test_pages.py finds each of them unchanged, and every decimal of a page's sentences in
its tables.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from posenc_jax.evaluation.statistics import paired

HERE = Path(__file__).parent
L, FAR, REAL_L = 64, 512, 8_192
# Hashes of the last targets of windows of 65,536 tokens.
EIGHT_BOOKS, THREE_BOOKS = "026f96502d4fefb5", "1d5c9749721bf6ac"
TO_TWICE_L = (
    "none streaming window:size=8192 self_extend yarn:2 dynamic_yarn ntk:2 dynamic_ntk "
    "ntk_by_parts:2 pi:2 rerope dca logn"
)
BEYOND = "none streaming window:size=8192 yarn:4 yarn:8 dynamic_yarn ntk:4 ntk:8 dynamic_ntk rerope"
AGAINST_STREAMING = "self_extend yarn:2 dynamic_yarn ntk:2 ntk_by_parts:2"
OVER_NONE, SHARE = "time over no bias", "of the products' rate"  # measures of benchmarks
F32, BF16 = "float32 over torch", "bfloat16 over torch"


@cache
def ordered(part: str = "ordered") -> pd.DataFrame:
    """Rows of a sweep of reach and order, the oracles named."""
    rows = pd.read_csv(HERE / part / "rows.csv.xz", low_memory=False)
    encoding = rows.run.str.extract(r"^ordered-(.*?)-s\d+")[0]
    oracle = np.where(rows.train_length == FAR, " trained at 512", "")
    return rows.assign(group=encoding + oracle)


def seeds(rows: pd.DataFrame, column: str = "accuracy") -> np.ndarray:
    """One value per seed."""
    return rows.groupby("seed")[column].mean().to_numpy()


def with_interval(values: np.ndarray) -> str:
    """Mean and half of a 95% t interval over seeds."""
    if len(values) < 2:
        return f"{values.mean():.3f}" if len(values) else "-"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ±{half:.3f}"


def markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def at(rows: pd.DataFrame, protocol: str, length: int, part: str | None = None) -> pd.DataFrame:
    chosen = (rows.protocol == protocol) & (rows.length == length)
    return rows[chosen if part is None else chosen & (rows.part == part)]


def name_of(group: str, method: str) -> str:
    return {"none": group, "window": f"{group}, window of L"}.get(method, f"{group} + {method}")


OF_ROPE = ("pi:8", "ntk_by_parts:8", "yarn:8", "dynamic_yarn", "self_extend", "dca")
ALONE = ("rope", "randomized", "hybrid_nope")  # log-n changes none of these by 0.05


def reach_and_order() -> str:
    """Encodings and what matters of their extensions, the best at both first."""
    return _reach_and_order(ordered())


def of_content() -> str:
    """The same of positions that depend on content, beside three others at tuned rates."""
    return _reach_and_order(ordered("content"))


def of_content_uniform() -> str:
    """The same where the distances between settings are uniform."""
    return _reach_and_order(ordered("content_uniform"))


def _reach_and_order(rows: pd.DataFrame) -> str:
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


def seeds_of_content() -> str:
    """Accuracy at L, reach and the last of two at 8 L, of each run."""
    rows = ordered("content")
    rows, body = rows[rows.method == "none"], []
    for (group, seed), own in rows.groupby(["group", "seed"]):
        near, *far = at(own, "answers", L), at(own, "reach", FAR), at(own, "latest", FAR, "all")
        values = near.accuracy / near.ceiling, *(one.accuracy for one in far)
        body.append([group, f"{seed}", *(f"{value.item():.3f}" for value in values)])
    return markdown(["", "seed", "all at L", "reach at 8 L", "last of two at 8 L"], body)


def rates_of_content(part: str) -> str:
    """The rates that were tried, with the loss at L on a third split."""
    tried = pd.read_csv(HERE / part / "choices.csv")
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
    zoo = [file for name in ("rope", "fire", "fox") for file in HERE.glob(f"fair/{name}-s*.csv")]
    files = [HERE / "content_text" / "rows.csv.xz", *zoo]
    rows = pd.concat([pd.read_csv(file, low_memory=False) for file in files])
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


def after_finetuning() -> str:
    """Reach and order at 8 L by the share of steps that a run was fine-tuned for."""
    before, rows = ordered(), pd.read_csv(HERE / "ordered_finetune" / "rows.csv.xz")
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


BUDGETS = {  # the runs, and their L
    "1,200 steps": (r"^ordered-[a-z0-9]+-s\d+$", L),
    "4,800 steps": (r"steps=4800", L),
    "4 layers, width 256": (r"layers=4", L),
    "L = 96": (r"-L96$", 96),
}
BY_BUDGET = [
    ("rope", "none"),
    ("rope", "yarn:8"),
    ("rope", "self_extend"),
    ("nope", "none"),
    ("nope", "logn"),
    ("fire", "none"),
    ("t5", "none"),
]


def by_budget() -> str:
    """Reach and order of four encodings after more steps, in larger models, and at another L."""
    rows, body = pd.concat([ordered(), ordered("ordered_sizes")]), []
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


MACHINES = {
    "amd-epyc-25-1": "Zen 3",
    "amd-epyc-25-17": "Zen 4",
    "amd-epyc-zen-5": "Zen 5",
    "intel-xeon": "Xeon",
}
TARGETS = [  # what, the least or most wanted, benchmark, case, measure
    (
        "attention with T5's bias over `jax.nn`, T = 256",
        "1.5",
        "attention",
        "256 t5",
        "over jax.nn",
    ),
    ("T = 512", "2", "attention", "512 t5", "over jax.nn"),
    ("T = 1,024", "3", "attention", "1024 t5", "over jax.nn"),
    ("T = 2,048", "3.5", "attention", "2048 t5", "over jax.nn"),
    ("time with T5's bias over none, T = 512", "≤ 1.15", "attention", "512 t5", OVER_NONE),
    ("time with FIRE's bias over none, T = 512", "≤ 1.5", "attention", "512 fire", OVER_NONE),
    ("T = 2,048", "≤ 1.5", "attention", "2048 fire", OVER_NONE),
    *(
        (f"training step over {how} x-transformers, {name}, {size}", least, "train_step", case, of)
        for how, least in (("eager", "2"), ("compiled", "1.3"))
        for name, scheme in (("RoPE", "rope"), ("ALiBi", "alibi"), ("T5", "t5"))
        for size in ("128 x 32", "512 x 8")
        for case, of in ((f"{size} {scheme}", f"over {how}"),)
    ),
    ("share of the products' rate, RoPE, 128 x 32", "60%", "train_step", "128 x 32 rope", SHARE),
    ("512 x 8", "60%", "train_step", "512 x 8 rope", SHARE),
    ("forward pass at SmolLM2's shape over torch, float32, T = 2,048", "1", "real", "2048", F32),
    ("T = 8,192", "1", "real", "8192", F32),
    ("T = 16,384", "1", "real", "16384", F32),
    ("bfloat16, T = 2,048", "1", "real", "2048", BF16),
    ("T = 8,192", "1", "real", "8192", BF16),
    ("bfloat16 over float32, T = 2,048", "1.5", "real", "2048", "bfloat16 over float32"),
    ("T = 8,192", "1.5", "real", "8192", "bfloat16 over float32"),
    *(
        (what, "≤ 1", "decode_real", f"{prompt} rope", "time per token over transformers")
        for prompt, what in (
            (512, "decoding at SmolLM2's shape, time per token over transformers, T = 512"),
            (4096, "T = 4,096"),
            (16384, "T = 16,384"),
        )
    ),
    *(
        (f"decoding, time per token over {how} x-transformers, {name}, T = {prompt:,}", "≤ 1")
        + ("decode_small", f"{prompt} {scheme}", f"time per token over {how}")
        for name, scheme in (("RoPE", "rope"), ("ALiBi", "alibi"), ("T5", "t5"))
        for how in (("eager",) if scheme == "t5" else ("eager", "flash"))
        for prompt in (512, 4096)
    ),
]


@cache
def speeds() -> pd.DataFrame:
    """Ratios of all benchmarks on all machines."""
    files = [HERE / "speed" / f"{stem}.csv" for stem in MACHINES]
    names = zip(files, MACHINES.values(), strict=True)
    return pd.concat([pd.read_csv(file).assign(machine=name) for file, name in names])


def ratio(row: Any) -> str:
    if row.measure == SHARE:
        return f"{row.middle:.0%}"
    if row.low == row.high:  # no spread
        return f"{row.middle:.2f}"
    return f"{row.middle:.2f} ({row.low:.2f} to {row.high:.2f})"


def machines() -> str:
    """What was measured where, with which versions."""
    rows = speeds().fillna("").drop_duplicates(["machine", "benchmark", "commit"])
    columns = ["machine", "processor", "cores", "benchmark", "jaxlib", "torch", "commit", "date"]
    return markdown(columns, rows[columns].astype(str).to_numpy().tolist())


def targets() -> str:
    """Every target beside what each machine reached."""
    rows, names = speeds(), ["Zen 3", "Zen 4", "Zen 5"]
    body = []
    for what, wanted, *place in TARGETS:
        chosen = rows[(rows[["benchmark", "case", "measure"]] == place).all(axis=1)]
        found = {row.machine: ratio(row) for row in chosen.itertuples()}
        body.append([what, wanted, *(found.get(name, "-") for name in names)])
    return markdown(["", "target", *names], body)


def by_machine(benchmark: str) -> Callable[[], str]:
    """A table of a benchmark: a line per case and machine, a column per measure."""

    def table() -> str:
        rows = speeds()[speeds().benchmark == benchmark]
        measures = list(rows.measure.unique())
        body = []
        for (case, machine), own in rows.groupby(["case", "machine"], sort=False):
            found = {row.measure: ratio(row) for row in own.itertuples()}
            body.append([case, machine, *(found.get(measure, "-") for measure in measures)])
        order = {case: place for place, case in enumerate(rows.case.unique())}
        body.sort(key=lambda line: order[line[0]])
        return markdown(["case", "machine", *measures], body)

    return table


def by_length(benchmark: str) -> pd.DataFrame:
    """Rows of a benchmark whose cases are a number of tokens and an encoding."""
    rows = speeds()[speeds().benchmark == benchmark]
    cases = rows.case.str.split(" ", n=1, expand=True)
    return rows.assign(tokens=cases[0].astype(int), encoding=cases[1])


def schemes() -> str:
    """Time over no position: a line per encoding, a column per length and machine."""
    rows = by_length("schemes")
    columns = list(rows.groupby(["tokens", "machine"], sort=False).groups)
    body = []
    for encoding, own in rows.groupby("encoding", sort=False):
        found = {(row.tokens, row.machine): ratio(row) for row in own.itertuples()}
        body.append([encoding, *(found.get(place, "-") for place in columns)])
    return markdown(["", *(f"{tokens:,}, {machine}" for tokens, machine in columns)], body)


def decoding() -> str:
    """Speed and memory of decoding: a line per encoding and machine, a column per context."""
    rows = by_length("decode_encodings")
    columns = [(what, n) for what in rows.measure.unique() for n in sorted(rows.tokens.unique())]
    body = []
    for (encoding, machine), own in rows.groupby(["encoding", "machine"], sort=False):
        values = own.set_index(["measure", "tokens"]).middle
        cells = [f"{values[place]:,.0f}" if place in values else "-" for place in columns]
        body.append([encoding, machine, *cells])
    return markdown(["", "machine", *(f"{what}, {n:,}" for what, n in columns)], body)


SEMANTICS = ("window", "prefix", "stale")


@cache
def decoded() -> pd.DataFrame:
    """Nats and targets of every run, method, semantics, length and document."""
    files = sorted((HERE / "semantics").glob("*.csv.xz"))
    rows = pd.concat([pd.read_csv(file).assign(run=file.name.split(".")[0]) for file in files])
    lengths = rows[rows.semantics == "window"].length.unique()
    keys = ["method", "semantics", "length", "run", "document"]
    return rows[rows.length.isin(lengths)].set_index(keys).sort_index()


def documents_of(method: str, semantics: str, length: int) -> pd.DataFrame:
    """Sums over runs, by document."""
    return decoded().loc[method, semantics, length].groupby("document").sum()


def by_semantics() -> str:
    """Nats per token of the last targets at every length, and plain RoPE's."""
    lengths, body = decoded().index.unique("length"), []
    methods = [one for one in decoded().index.unique("method") if one != "none"]
    chosen = [("none", "none"), *((m, semantics) for m in methods for semantics in SEMANTICS)]
    for method, semantics in chosen:
        sums = [documents_of(method, semantics, length).sum() for length in lengths]
        name = "plain RoPE" if method == "none" else f"{method}, {semantics}"
        body.append([name, *(f"{one.nats / one.targets:.3f}" for one in sums)])
    return markdown(["", *(f"{length:,}" for length in lengths)], body)


def between_semantics() -> str:
    """Differences from `prefix` on the same targets, with 95% intervals over documents."""
    lengths, body = decoded().index.unique("length"), []
    for method in decoded().index.unique("method").drop("none"):
        for semantics in ("stale", "window"):
            cells = []
            for length in lengths[1:]:
                own, other = (documents_of(method, s, length) for s in (semantics, "prefix"))
                cells.append(signed(less(own, other)))
            body.append([f"{method}: {semantics} less prefix", *cells, by_seed(method, semantics)])
    head = ["", *(f"{length:,}" for length in lengths[1:])]
    return markdown([*head, f"{lengths[-1]:,}, by seed"], body)


def by_seed(method: str, semantics: str) -> str:
    """The difference from `prefix` at the longest length, of each run."""
    length = decoded().index.unique("length").max()
    sums = [decoded().loc[method, s, length].groupby("run").sum() for s in (semantics, "prefix")]
    values = (sums[0].nats - sums[1].nats) / sums[0].targets
    return ", ".join(f"{value:+.3f}" for value in values)


@cache
def of_smollm2(protocol: str) -> pd.DataFrame:
    """Sums of a protocol on SmolLM2, a row per cell and book."""
    rows = pd.read_csv(HERE / "real" / "documents.csv.xz")
    return rows[rows.protocol == protocol]


@cache
def real() -> pd.DataFrame:
    """Nats and targets of `same_token` on SmolLM2, by method, length and book; all rows of a book
    have the end of its window of 65,536 tokens."""
    rows = of_smollm2("same_token")
    rows = rows[rows.token_hash.isin([EIGHT_BOOKS, THREE_BOOKS])]
    return rows.set_index(["method", "length", "document"]).sort_index()


@cache
def copies(length: int) -> pd.DataFrame:
    """Nats and targets of `copies` in rows of this length, by method, distance, whether read, and
    book."""
    rows = of_smollm2("copies")
    rows = rows[rows.length == length]
    back = rows.part.str.extract(r"(\d+)$")[0].astype(int)
    rows = rows.assign(back=back, read=~rows.part.str.startswith("unread"))
    return rows.set_index(["method", "read", "back", "document"]).sort_index()


def losses_of_copies(length: int) -> pd.Series:
    """Mean nats per token by method, whether read, and the tokens back, from 1,024 on."""
    sums = copies(length)[["nats", "targets"]].groupby(["method", "read", "back"]).sum()
    return (sums.nats / sums.targets).loc[:, :, 1_024:]


def of_copies(length: int) -> str:
    """Loss of a passage by the tokens back to its copy, and without one."""
    means = losses_of_copies(length)

    def cells(method: str, read: bool) -> list[str]:
        return [f"{nats:.2f}" for nats in means.loc[method, read]]

    body = [["streaming, no copy", *cells("streaming", False)]]
    body += [[method, *cells(method, True)] for method in means.index.unique("method")]
    return markdown(["", *(f"{back:,}" for back in means.index.unique("back"))], body)


def far_copies(length: int) -> str:
    """What a copy beyond L gains each method, against its own loss without one."""
    every = copies(length)
    backs = [back for back in every.index.unique("back") if back > REAL_L]

    def gain(method: str, back: int) -> str:
        return signed(less(every.loc[method, True, back], every.loc[method, False, back]))

    methods = every.index.unique("method")
    body = [[method, *(gain(method, back) for back in backs)] for method in methods]
    return markdown(["", *(f"{back:,}" for back in backs)], body)


def lost(method: str, length: int, other: str = "none", than: int = REAL_L) -> Any:
    """What a method loses, in nats per target, against another on the books that both read: by
    default a plain row of L."""
    rows = real()[["nats", "targets"]]
    own, baseline = rows.loc[method, length].align(rows.loc[other, than], join="inner", axis=0)
    return less(own, baseline)


def less(own: pd.DataFrame, other: pd.DataFrame) -> Any:
    """Difference of two losses over the same targets, with an interval over documents."""
    return paired(own.nats.to_numpy(), other.nats.to_numpy(), own.targets.to_numpy())


def signed(found: Any) -> str:
    return f"{found.mean:+.3f} [{found.low:.3f}, {found.high:.3f}]"


def real_lengths(methods: str, lengths: tuple[int, ...], other: str = "none") -> str:
    """What each method loses at each length against a plain row of L, or another method there."""

    def cell(method: str, length: int) -> str:
        if (method, length) not in real().index.droplevel("document"):
            return ""
        return signed(lost(method, length, other, REAL_L if other == "none" else length))

    body = []
    for method in methods.split():
        few = len(real().loc[method].index.unique("document")) < len(real().loc["none", REAL_L])
        name = f"{method}, three books" if few else method
        body.append([name, *(cell(method, length) for length in lengths)])
    return markdown(["", *(f"{length:,}" for length in lengths)], body)


def real_pairs() -> str:
    """Differences of two methods at one length."""
    pairs = (
        ("yarn:2", "self_extend", 12_288),
        ("yarn:2", "self_extend", 16_384),
        ("rerope", "yarn:2", 16_384),
        ("dynamic_yarn", "yarn:4", 24_576),
        ("rerope", "yarn:4", 32_768),
        ("yarn:8", "window:size=8192", 65_536),
    )
    body = [
        [f"{one} less {other}", f"{length:,}", signed(lost(one, length, other, length))]
        for one, other, length in pairs
    ]
    return markdown(["", "tokens", "difference"], body)


def real_devices() -> str:
    """Loss of the same targets on a CPU and on a GPU, and the largest difference of a book."""
    rows = of_smollm2("same_token")
    rows = rows.assign(on=rows.processor.str.startswith("NVIDIA").map({True: "gpu", False: "cpu"}))
    rows = rows.set_index(["method", "length", "token_hash", "document", "on"])
    both = rows[["nats", "targets"]].unstack("on").dropna()
    body = []
    for (method, length), own in both.groupby(["method", "length"]):
        targets = own.targets.cpu
        means = [own.nats[on].sum() / targets.sum() for on in ("cpu", "gpu")]
        largest = ((own.nats.gpu - own.nats.cpu) / targets).abs().max()
        body.append([method, f"{length:,}", *(f"{mean:.3f}" for mean in means), f"{largest:.3f}"])
    return markdown(["", "tokens", "CPU", "H200", "largest difference of a book"], body)


def order_of_planted() -> str:
    """Share of right answers and their loss, by older settings and the tokens between two."""
    sums = of_smollm2("planted").groupby(["method", "part"])[["nats", "targets", "right"]].sum()
    parts = sorted(sums.index.unique("part"), key=lambda part: [*map(int, part.split("-"))])
    older = [int(part.split("-")[0]) for part in parts]
    head = ["none older", *(part.replace("-", " older, ") for part in parts[1:])]
    body = []
    for method, own in sums.groupby("method"):
        own = own.droplevel("method").loc[parts]
        shares, nats = own.right / own.targets, own.nats / own.targets
        body.append([method, *(f"{s:.2f} ({n:.2f})" for s, n in zip(shares, nats, strict=True))])
    body.append(["a reader without order", *(f"{1 / (k + 1):.2f}" for k in older)])
    return markdown(["", *head], body)


def losses_of_planted() -> str:
    """What a method loses against `none` on the right values, by the number of older settings."""
    rows = of_smollm2("planted")
    rows = rows.assign(older=rows.part.str.split("-").str[0])
    sums = rows.groupby(["method", "older", "document"])[["nats", "targets"]].sum()

    def cell(method: str, older: str) -> str:
        return signed(less(sums.loc[method, older], sums.loc["none", older]))

    olders, methods = sums.index.unique("older"), sums.index.unique("method").drop("none")
    body = [[f"{method} less none", *(cell(method, k) for k in olders)] for method in methods]
    return markdown(["", "none older", *(f"{k} older" for k in olders[1:])], body)


def on_gpu(part: str) -> dict[str, dict[str, Any]]:
    """Measurements of `make gpu` on an H200, by their names."""
    lines = (HERE / "speed" / "nvidia-h200.jsonl").read_text(encoding="utf-8").splitlines()
    records = {record["key"].partition("/"): record for record in map(json.loads, lines)}
    return {name: r for (of, _, name), r in records.items() if of == part and r["state"] == "done"}


def gpu_kernels() -> str:
    """Milliseconds of attention and its gradient, and errors of the gradient in per mille."""
    body = []
    for name, record in on_gpu("kernels").items():
        plain, kernel = record["plain_ms"], record.get("cudnn_ms")
        times = [record.get(f"{way}_ms") for way in ("plain", "blockwise", "cudnn")]
        errors = [record.get(f"{way}_gradient_error") for way in ("plain", "blockwise", "cudnn")]
        cells = [f"{ms:.2f}" if ms else "" for ms in times]
        cells += [f"{plain / kernel:.1f}" if kernel else ""]
        cells += [f"{1000 * error:.1f}" if error else "" for error in errors]
        body.append([name.partition("@")[0], *cells])
    ways = "plain", "by blocks", "cuDNN"
    head = ["", *(f"{way}, ms" for way in ways), "plain over cuDNN"]
    return markdown([*head, *(f"{way}, error in ‰" for way in ways)], body)


def gpu_steps() -> str:
    """Tokens per second of a training step, in several processes."""
    body = []
    for name, record in on_gpu("steps").items():
        if "mfu" in record:
            size, alone = f"{record['parameters'] / 1e6:.1f}M", f"{record['tokens_per_s']:,.0f}"
            beside = [f"{rate:,}" for rate in record["tokens_per_s_beside_others"]]
            beside += [""] * (2 - len(beside))
            body.append([name, size, str(record["rows"]), alone, *beside])
    head = ["", "parameters", "rows", "alone", "beside 14 processes", "beside 10"]
    return markdown(head, body)


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "order.md": {
        "reach-and-order": reach_and_order,
        "older": by_older,
        "separation": by_separation,
        "scale": by_scale,
        "oracles": of_oracles,
        "finetuning": after_finetuning,
        "budget": by_budget,
    },
    "content.md": {
        "content": of_content,
        "content-uniform": of_content_uniform,
        "content-text": of_content_on_text,
        "content-text-less": differences_on_text,
        "content-seeds": seeds_of_content,
        "content-rates": partial(rates_of_content, "content"),
        "content-rates-text": partial(rates_of_content, "content_text"),
    },
    "decoding.md": {"semantics": by_semantics, "differences": between_semantics},
    "real.md": {
        "real-context": partial(real_lengths, "none streaming", (1_024, 2_048, 4_096, 9_216)),
        "real-lengths": partial(real_lengths, TO_TWICE_L, (8_192, 10_240, 12_288, 16_384)),
        "real-far": partial(real_lengths, BEYOND, (8_192, 24_576, 32_768, 65_536)),
        "real-streaming": partial(
            real_lengths, AGAINST_STREAMING, (10_240, 12_288, 16_384), "streaming"
        ),
        "real-pairs": real_pairs,
        "real-devices": real_devices,
        "real-copies": partial(of_copies, 12_288),
        "real-far-copies": partial(far_copies, 12_288),
        "real-copies-32k": partial(of_copies, 32_768),
        "real-far-copies-32k": partial(far_copies, 32_768),
        "real-order": order_of_planted,
        "real-order-losses": losses_of_planted,
    },
    "../performance.md": {
        "machines": machines,
        "targets": targets,
        "attention": by_machine("attention"),
        "steps": by_machine("train_step"),
        "real": by_machine("real"),
        "memory": by_machine("memory"),
        "gpu-kernels": gpu_kernels,
        "gpu-steps": gpu_steps,
        "decode-real": by_machine("decode_real"),
        "decode-small": by_machine("decode_small"),
        "decode": decoding,
        "schemes": schemes,
    },
}


def written(page: str, text: str) -> str:
    """The page with its tables as the rows have them."""
    for name, make in PAGES[page].items():
        before, begin, rest = text.partition(f"<!-- table {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"{page} has no place for the table {name!r}")
        text = before + begin + make() + end + after
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = HERE / page
        path.write_text(written(page, path.read_text()))
