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
from posenc_jax.report.frames import Estimate
from study.cells import STUDY, rows_of, short, signed
from study.tuning import rates

L, FAR = 64, 512
NOTHING, SEARCH = "nothing", "search"
RUNGS = {  # in words
    "temperature": "one temperature",
    "numbers": "and shared frequencies",
    "layers": "both for each layer",
    SEARCH: "search over YaRN's options",
    "long_temperature": "one temperature, rows of 8 L",
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
    return short(Estimate(float(values.mean()), None, None, values), sign)


def ladder() -> Table:
    """Nats per token at 8 L less those of YaRN by 8 alone, nats at L less those of the base alone,
    and accuracy at 8 L, over seeds."""
    plain, short_rows = seeds(NOTHING, **FAR_TEXT), seeds(NOTHING, method="none", **NEAR_TEXT)
    body = [
        [
            words,
            str(rates.best().get(rung, "")),
            mean(seeds(rung, **FAR_TEXT) - plain, "+"),
            mean(seeds(rung, **NEAR_TEXT) - short_rows, "+"),
            # Rows of 8 L have questions of their own.
            "" if rung.startswith("long") else mean(seeds(rung, **ANSWERS)),
        ]
        for rung, words in RUNGS.items()
    ]
    near = mean(seeds(NOTHING, **NEAR_TEXT) - short_rows, "+")
    answers = mean(seeds(NOTHING, **ANSWERS))
    body.insert(0, ["nothing: YaRN by 8", "", mean(0 * plain, "+"), near, answers])
    far, near = (seeds(NOTHING, method="window", **text) for text in (FAR_TEXT, NEAR_TEXT))
    body.append(["a window of L instead", "", mean(far - plain, "+"), mean(near - short_rows, "+")])
    body[-1] += [mean(seeds(NOTHING, method="window", **ANSWERS))]
    return Table("", ["trained", "rate", "text at 8 L", "text at L", "answers at 8 L"], body)


def of_rates() -> Table:
    """Nats per token at 8 L of a split to choose by, of seed 0, by rung and rate."""
    tried = pd.read_csv(rates.ROWS)
    found = tried.pivot(index="rung", columns="rate", values="nll")
    body = [
        [words, *(f"{nats:.3f}" for nats in found.loc[rung])]
        for rung, words in RUNGS.items()
        if rung != SEARCH
    ]
    return Table("", ["trained", *(f"{rate:g}" for rate in found.columns)], body)


def factors() -> Table:
    """The factor that training puts on scores beside YaRN's, in rows of L and of 8 L, by seed."""
    rows = pd.read_csv(STUDY / "tuning" / "rows" / "factors.csv")
    body = []
    for rung, own in rows.groupby("rung", sort=False):
        at = [mean(own.s.to_numpy() * np.log(keys) + own.b.to_numpy()) for keys in (L, FAR)]
        body.append([RUNGS[str(rung)], *at])
    return Table("", ["trained", "at 64 keys", "at 512 keys"], body)


ROW, FAR_BACK = 12_288, 6_144  # tokens; without an extension SmolLM2 hardly reads 7,168 back


@cache
def books() -> pd.DataFrame:
    """Nats and targets of the runs of smollm2.sh, means of seeds: by rung, what was scored, and
    book. Copies are those from 6,144 tokens back on."""
    rows = pd.read_csv(STUDY / "tuning" / "rows" / "smollm2.csv.xz")
    named = rows.run.str.extract(r"^(?P<rung>\w+)-s(?P<seed>\d)-")
    found = rows.part.fillna("").str.extract(r"^(?:(?P<kind>[a-z]+)-)?(?P<back>\d+)$")
    rows = rows.assign(rung=named.rung.fillna(NOTHING), seed=named.seed.fillna("0"))
    rows["kind"] = found.kind.fillna("far").where(rows.protocol == "copies", rows.length)
    far = (rows.length == ROW) & (found.back.astype(float) >= FAR_BACK)
    rows = rows[(rows.protocol != "copies") | far].astype({"kind": str})
    sums = rows.groupby(["rung", "seed", "kind", "document"])[["nats", "targets"]].sum()
    return sums.groupby(["rung", "kind", "document"]).mean()


def smollm2() -> Table:
    """What each rung adds to the nats per token of YaRN by 2 alone, and the share that far copies
    keep, over books."""
    runs = pd.read_csv(STUDY / "tuning" / "rows" / "smollm2.csv.xz").run.unique()
    body = []
    for rung, words in ({NOTHING: "nothing: YaRN by 2"} | RUNGS).items():
        own = [run for run in runs if run.startswith(f"{rung}-s")]
        if not own and rung != NOTHING:
            continue
        nats = books().nats[rung].unstack("document")
        less, targets = books().nats[NOTHING].unstack("document"), books().targets[rung]
        line = [words, own[0].partition("rate=")[2] if own else "", str(len(own)) if own else ""]
        for kind in ("2048", "unread", "near", "far"):
            counts = targets[kind].to_numpy()
            line.append(signed(paired(nats.loc[kind], less.loc[kind], counts)))
        unread, near, far = (nats.loc[kind].to_numpy() for kind in ("unread", "near", "far"))
        kept = share_kept(targets["far"].to_numpy(), far, near, unread)
        body.append([*line, f"{kept.mean:.2f} [{kept.low:.2f}, {kept.high:.2f}]"])
    head = ["trained", "rate", "seeds", "text at 2,048", "text at 12,288"]
    return Table("", [*head, "near copies", "far copies", "share kept"], body)


TABLES = {"tuning-small": ladder, "tuning-factors": factors, "tuning-rates": of_rates}
TABLES |= {"tuning-smollm2": smollm2}
