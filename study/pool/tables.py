"""Tables of the page on four choices of architecture."""

import itertools
import json
import tarfile
from collections.abc import Callable
from functools import cache

import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import selected
from study.cells import STUDY, of_seeds, rows_of, short, table
from study.order.tables import FOUND
from study.pool.pool import FAR, WINDOW, L

ROWS = "pool/rows/pool"
CHOICES: dict[str, Callable[[dict], bool]] = {  # whether the configuration of a run has made it
    "OLMo's norms": lambda config: config["model"]["norm_place"] == "output",
    "one key head": lambda config: config["model"]["kv_heads"] == 1,
    "half of L": lambda config: config["train_length"] == L // 2,
    "a window": lambda config: config["encoding"]["window"] == WINDOW,
}
BEYOND = FOUND | {"method": "yarn"}


@cache
def runs() -> pd.DataFrame:
    """The choices of every run, and its loss on answers at L, of a third split."""
    found = []
    with tarfile.open(STUDY / ROWS / "runs.tar.xz") as files:
        for name in (name for name in files.getnames() if name.endswith("config.json")):
            folder = name.rpartition("/")[0]
            config, metrics = (
                files.extractfile(f"{folder}/{one}").read().decode()
                for one in ("config.json", "metrics.jsonl")
            )
            config, last = json.loads(config), json.loads(metrics.splitlines()[-1])
            made = {choice: is_made(config) for choice, is_made in CHOICES.items()}
            facts = {"run": folder.rpartition("/")[2], "seed": config["seed"]}
            found.append(facts | made | {"loss": last["choose_loss"]})
    return pd.DataFrame(found)


@cache
def grid() -> pd.DataFrame:
    """Rows with the choices of each run; YaRN by 512 / L is `yarn`."""
    rows = rows_of(ROWS).merge(runs().drop(columns="seed"), on="run")
    reaching = rows.method == "yarn:" + (FAR // rows.train_length).astype(str)
    return rows.assign(method=rows.method.mask(reaching, "yarn"))


def by_seed(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """A row per seed, a column per model, by its choices."""
    return rows.set_index(["seed", *CHOICES])[value].unstack([*CHOICES])


def beyond() -> pd.DataFrame:
    return by_seed(selected(grid(), BEYOND), "found")


def loss() -> pd.DataFrame:
    return by_seed(runs(), "loss")


def by_model() -> Table:
    """What every model finds within its own L and, with YaRN, beyond."""
    columns = {}
    for length in (L, L // 2):
        within = {"part": "within", "length": length, "method": "none"}
        for words, asked in {"within": FOUND | within, "beyond": BEYOND}.items():
            columns[f"{words} L = {length}"] = asked | {"train_length": length}
    lines, names = {}, [name for name in CHOICES if name != "half of L"]
    for made in itertools.product((False, True), repeat=len(names)):
        own = dict(zip(names, made, strict=True))
        lines[", ".join(name for name in names if own[name]) or "none of these"] = own
    return table(grid(), lines, columns, corner="found")


def effects() -> Table:
    """What a choice changes of what is found beyond L, a mean over the pairs of models that differ
    in it: all eight, and those of four without a window and with one."""
    found, body = beyond(), []
    for choice in CHOICES:
        change = found.xs(True, axis=1, level=choice) - found.xs(False, axis=1, level=choice)
        pairs = [change]
        if choice != "a window":
            pairs += [change.xs(made, axis=1, level="a window") for made in (False, True)]
        cells = [signed(own.mean(axis=1)) for own in pairs]
        body.append([choice, *cells, *[""] * (3 - len(cells))])
    return Table("", ["found beyond L", "all pairs", "without a window", "with a window"], body)


def signed(seeds: pd.Series) -> str:
    return short(of_seeds(seeds), "+")


def ranks() -> Table:
    """Rank correlations over models, means over seeds."""
    found, losses = beyond(), loss()
    models = pd.DataFrame(list(found.columns), columns=[*CHOICES], index=found.columns)
    number, window = (
        pd.DataFrame([values] * len(found), found.index, found.columns)
        for values in (models.sum(axis=1), models["a window"].astype(int))
    )
    long, windowed = ~models["half of L"], models["a window"]
    every, body = windowed | ~windowed, []
    for words, one, other, which, kept in (
        ("choices, found beyond L", number, found, "all sixteen", every),
        ("choices, found beyond L", number, found, "with a window", windowed),
        ("a window or none, found beyond L", window, found, "all sixteen", every),
        ("choices, loss at L", number, losses, f"L = {L}", long),
        ("loss at L, found beyond L", losses, found, f"L = {L}", long),
        ("loss at L, found beyond L", losses, found, f"L = {L}, a window", long & windowed),
        ("loss at L, found beyond L", losses, found, f"L = {L // 2}, a window", ~long & windowed),
    ):
        own = list(kept[kept].index)
        ranked = one[own].T.corrwith(other[own].T, method="spearman")
        body.append([words, which, signed(ranked)])
    return Table("", ["", "models", "rank correlation"], body)


TABLES = {"models": by_model, "effects": effects, "ranks": ranks}
