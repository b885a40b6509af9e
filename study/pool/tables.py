"""Tables of the page on four choices of architecture."""

import itertools
import json
import tarfile
from collections.abc import Callable
from functools import cache, partial

import pandas as pd

from posenc_jax.display import Table
from posenc_jax.report.frames import Estimate, selected
from study.cells import STUDY, rows_of, short, table
from study.order.tables import FOUND
from study.pool.pool import FAR, WINDOW, L

ROWS = "pool/rows/pool"
CHOICES: dict[str, Callable[[dict], bool]] = {  # whether the configuration of a run has made it
    "OLMo's norms": lambda config: config["model"]["norm_place"] == "output",
    "one key head": lambda config: config["model"]["kv_heads"] == 1,
    "a window": lambda config: config["encoding"]["window"] == WINDOW,
    "half of L": lambda config: config["train_length"] == L // 2,
}
WITHIN = {"protocol": "found", "part": "within", "method": "none", "value": "found"}
LOSS = {"protocol": "found", "part": "beyond", "length": FAR, "value": "loss"}
NONE = (False,) * len(CHOICES)
MEASURES = {"found": FOUND, "loss at L": LOSS}


@cache
def grid() -> pd.DataFrame:
    """Rows with the choices and the loss of each run; YaRN by 512 / L is `yarn`."""
    rows = rows_of(ROWS).merge(runs(), on="run")
    reaching = rows.method == "yarn:" + (FAR // rows.train_length).astype(str)
    return rows.assign(method=rows.method.mask(reaching, "yarn"))


def runs() -> pd.DataFrame:
    """The choices of every run, and its loss on answers at L on text that neither trained nor
    tested it."""
    found = []
    with tarfile.open(STUDY / ROWS / "runs.tar.xz") as files:
        for name in (name for name in files.getnames() if name.endswith("config.json")):
            config, metrics = (
                files.extractfile(name.replace("config.json", one)).read().decode()
                for one in ("config.json", "metrics.jsonl")
            )
            made = {choice: of(json.loads(config)) for choice, of in CHOICES.items()}
            last = json.loads(metrics.splitlines()[-1])
            found.append({"run": name.split("/")[-2], "loss": last["choose_loss"]} | made)
    return pd.DataFrame(found)


def measured(name: str) -> pd.DataFrame:
    """One measure: a row per seed, a column per model, by its choices."""
    rows = selected(grid(), {"method": "yarn", **MEASURES[name]})
    return rows.set_index(["seed", *CHOICES])[MEASURES[name]["value"]].unstack([*CHOICES])


def by_model() -> Table:
    """Every model: what it finds within its own L and, with YaRN, beyond."""
    columns = {}
    for words, asked in {"at L": WITHIN, "beyond": FOUND}.items():
        for length in (L, L // 2):
            own = {"method": "yarn", "length": length} | asked | {"train_length": length}
            columns[f"{words}, {length}"] = own
    lines, names = {}, [name for name in CHOICES if name != "half of L"]
    for made in itertools.product((False, True), repeat=len(names)):
        own = dict(zip(names, made, strict=True))
        lines[", ".join(name for name in names if own[name]) or "none of these"] = own
    return table(grid(), lines, columns, corner="found; L:")


def effects() -> Table:
    """What each choice changes, over the eight pairs of models that differ in it alone, and what
    three or four change beyond the sum of the single ones."""
    lines = {choice: partial(effect, choice=choice) for choice in CHOICES}
    lines["three or four, less the sum of the single ones"] = beyond_the_sum
    body = [[name, *(signed(of(measured(m))) for m in MEASURES)] for name, of in lines.items()]
    return Table("", ["", *MEASURES], body)


def effect(models: pd.DataFrame, choice: str) -> pd.Series:
    return (
        models.xs(True, axis=1, level=choice)
        .sub(models.xs(False, axis=1, level=choice))
        .mean(axis=1)
    )


def beyond_the_sum(models: pd.DataFrame) -> pd.Series:
    """What models with three or four choices have, less what none and the single ones add up to."""
    none = models[NONE]
    single = [
        models[tuple(i == j for j in range(len(CHOICES)))] - none for i in range(len(CHOICES))
    ]
    many = [made for made in models if sum(made) >= 3]
    added = {made: none + sum(single[i] for i, one in enumerate(made) if one) for made in many}
    return (models[many] - pd.DataFrame(added)).mean(axis=1)


def signed(seeds: pd.Series) -> str:
    values = seeds.to_numpy()
    return short(Estimate(values.mean(), None, None, values), "+")


def ranks() -> Table:
    """Rank correlations over models, a mean over seeds."""
    number = measured("found").copy()
    number.loc[:] = [[sum(made) for made in number]] * len(number)
    found, loss = (measured(name) for name in MEASURES)
    pairs = {"choices, found": (number, found), "choices, loss": (number, loss)}
    pairs |= {"loss, found": (loss, found)}
    lengths = {"all sixteen": (False, True), f"L = {L}": (False,), f"L = {L // 2}": (True,)}
    body = []
    for words, (one, other) in pairs.items():
        cells = []
        for kept in lengths.values():
            own = [made for made in one if made[-1] in kept]
            ranked = one[own].T.corrwith(other[own].T, method="spearman")
            cells.append(signed(ranked))
        body.append([words, *cells])
    return Table("", ["", *lengths], body)


TABLES = {"models": by_model, "effects": effects, "ranks": ranks}
