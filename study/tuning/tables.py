"""Tables of README.md, the ladder: what is trained of a model, and what it gives beyond L.

Rows of the small model are in rows/small, those of SmolLM2 in rows/smollm2.csv.xz.
"""

import re
from functools import cache

import numpy as np
import pandas as pd

from posenc_jax.display import Table
from posenc_jax.evaluation.protocols.copies import share_kept
from posenc_jax.evaluation.statistics import paired
from study.cells import STUDY, of_seeds, rows_of, short, signed
from study.tuning import rates

L, FAR = 64, 512
OF_BOOKS = STUDY / "tuning" / "rows" / "smollm2_rates.csv", "nats"  # by which rates are chosen
NOTHING, SEARCH = "nothing", "search"
RUNGS = {  # in words
    "temperature": "a temperature",
    "numbers": "and shared frequencies",
    "layers": "both for each layer",
    SEARCH: "search over YaRN's options",
    "long_temperature": "a temperature, rows of 8 L",
    "long_numbers": "and shared frequencies, rows of 8 L",
    "bias": "a bias (FIRE)",
    "lora": "LoRA, rank 8",
    "all": "all weights",
}


@cache
def small() -> pd.DataFrame:
    """Rows of the runs of small.py with their rung, of seed 0 those at the chosen rate; rows of a
    base are its own (`nothing`, YaRN by 8) or those of a search."""
    rows, tried = rows_of("tuning/rows/small"), pd.read_csv(rates.ROWS)
    best = rates.best()
    left = tried.run[tried.rate != tried.rung.map(best)]
    rows = rows[~rows.run.isin(left)]
    searched = rows.evaluation.str.endswith("-search")
    rung = rows.run.map(_rung).where(~searched, SEARCH)
    return rows.assign(rung=rung, evaluation=rows.evaluation.str.removesuffix("-search"))


def _rung(run: str) -> str:
    if found := re.match(r"ladder-(\w+)-s\d", run):
        return found[1]
    if run.startswith("finetune"):
        return "long_numbers" if "frequencies=trained" in run else "long_temperature"
    return NOTHING


def seeds(rung: str, value: str = "nll", method: str = "", **where) -> np.ndarray:
    """A value by seed; of a run's own extension, and of YaRN by 8 on a base."""
    rows = small()[small().rung == rung]
    if rung != SEARCH:
        rows = rows[rows.method == (method or ("yarn:8" if rung == NOTHING else "none"))]
    for name, wanted in where.items():
        rows = rows[rows[name] == wanted]
    rows = rows.sort_values("seed")
    assert list(rows.seed) == [0, 1, 2, 3, 4], (rung, where, list(rows.run))
    return rows[value].to_numpy()


FAR_TEXT = {"evaluation": "text", "protocol": "same_token", "length": FAR}
NEAR_TEXT = FAR_TEXT | {"length": L}
ANSWERS = {"evaluation": "variables", "protocol": "answers", "length": FAR, "value": "accuracy"}


def mean(values: np.ndarray, sign: str = "") -> str:
    return short(of_seeds(values), sign)


def ladder() -> Table:
    """Nats per token at 8 L less those of YaRN by 8 alone, nats at L less those of the base alone,
    accuracy at 8 L, and the trained factor, over seeds."""
    plain, short_rows = seeds(NOTHING, **FAR_TEXT), seeds(NOTHING, method="none", **NEAR_TEXT)
    body = [
        [
            words,
            str(rates.best().get(rung, "")),
            mean(seeds(rung, **FAR_TEXT) - plain, "+"),
            mean(seeds(rung, **NEAR_TEXT) - short_rows, "+"),
            # Rows of 8 L have questions of their own.
            "" if rung.startswith("long") else mean(seeds(rung, **ANSWERS)),
            *factors(rung),
        ]
        for rung, words in RUNGS.items()
    ]
    near = mean(seeds(NOTHING, **NEAR_TEXT) - short_rows, "+")
    answers = mean(seeds(NOTHING, **ANSWERS))
    body.insert(0, ["nothing: YaRN by 8", "", mean(0 * plain, "+"), near, answers, "", ""])
    far, near = (seeds(NOTHING, method="window", **text) for text in (FAR_TEXT, NEAR_TEXT))
    body.append(["a window of L instead", "", mean(far - plain, "+"), mean(near - short_rows, "+")])
    body[-1] += [mean(seeds(NOTHING, method="window", **ANSWERS)), "", ""]
    head = ["trained", "rate", "text at 8 L", "text at L", "answers at 8 L"]
    return Table("", [*head, "factor at 64 keys", "at 512"], body)


def factors(rung: str) -> list[str]:
    """The factor that training puts on scores beside YaRN's, at L and at 8 L keys, over seeds."""
    rows = pd.read_csv(STUDY / "tuning" / "rows" / "factors.csv")
    own = rows[rows.rung == rung]
    values = [own.s.to_numpy() * np.log(keys) + own.b.to_numpy() for keys in (L, FAR)]
    return ["" if own.empty else mean(factor) for factor in values]


ROW, OWN = 12_288, 8_192  # tokens, and L
FAR_BACK = 6_144  # tokens back; without an extension SmolLM2 hardly reads 7,168 back


@cache
def books() -> pd.DataFrame:
    """Nats and targets of the runs of smollm2.sh, means of seeds: by rung, what was scored, and
    book. Copies are those from 6,144 tokens back on, and again those beyond L."""
    rows = pd.read_csv(STUDY / "tuning" / "rows" / "smollm2.csv.xz")
    rows = rows[(rows.protocol == "copies") & (rows.length == ROW)]
    named = rows.run.str.extract(r"^(?P<rung>\w+)-s(?P<seed>\d)-rate=(?P<rate>.+)$")
    chosen = named.rung.map(rates.best(*OF_BOOKS))
    kept = (named.rate.astype(float) == chosen) | named.rung.isna()
    rows, named = rows[kept], named[kept]
    found = rows.part.str.extract(r"^(?:(?P<kind>[a-z]+)-)?(?P<back>\d+)$")
    rows = rows.assign(rung=named.rung.fillna(NOTHING), seed=named.seed.fillna("0"))
    rows, back = rows.assign(kind=found.kind.fillna("far")), found.back.astype(int)
    beyond = rows[back > OWN].assign(kind=lambda own: own.kind + "-beyond")
    rows = pd.concat([rows[back >= FAR_BACK], beyond])
    sums = rows.groupby(["rung", "seed", "kind", "document"])[["nats", "targets"]].sum()
    every = sums.groupby(["rung", "kind", "document"])
    return every.mean().assign(seeds=every.size())


def smollm2() -> Table:
    """What each rung adds to the nats per token of YaRN by 2 alone, and the share that copies
    beyond L keep, over books."""
    body = []
    for rung, words in ({NOTHING: "nothing: YaRN by 2"} | RUNGS).items():
        if rung not in books().index:
            continue
        number = books().seeds[rung].iloc[0]
        nats = books().nats[rung].unstack("document")
        less, targets = books().nats[NOTHING].unstack("document"), books().targets[rung]
        line = [words, str(number) if rung != NOTHING else ""]
        for kind in ("unread", "near", "far-beyond"):
            counts = targets[kind].to_numpy()
            added = paired(nats.loc[kind], less.loc[kind], counts)
            line.append("" if rung == NOTHING else signed(added))
        three = (nats.loc[f"{kind}-beyond"].to_numpy() for kind in ("far", "near", "unread"))
        kept = share_kept(targets["far-beyond"].to_numpy(), *three)
        body.append([*line, f"{kept.mean:.2f} [{kept.low:.2f}, {kept.high:.2f}]"])
    head = ["trained", "seeds", "text", "near copies", "beyond L", "share kept"]
    return Table("", head, body)


TABLES = {"tuning-small": ladder, "tuning-smollm2": smollm2}
