"""Order in pretrained models: the rows and tables of pretrained.md.

python -m study.order.pretrained RUNS writes what the runs of pretrained.sh preferred, by book.
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

import posenc_jax
from posenc_jax.display import Table
from posenc_jax.evaluation.cells import label
from posenc_jax.evaluation.protocols import revised
from posenc_jax.evaluation.records import read_cells
from posenc_jax.evaluation.statistics import Difference, paired
from posenc_jax.extensions import distance
from study.cells import STUDY

ROWS = STUDY / "order" / "rows"
LENGTH = 512
MODELS = {"smollm2": "SmolLM2", "gemma3": "Gemma 3"}
TIED = "self_extend:group=512:window=16"
CONTEXTS = (64, 8_192, 16_384, 32_768, 65_536)
DISTINGUISHED = ("none", "yarn:2")
METHODS = {"none": "no extension", "yarn:2": "YaRN by 2", TIED: "Self-Extend", "dca": "DCA"}
KINDS = {1: "kept", 0: "tied", -1: "turned round"}
ASKED = {"none": "", "dca": "-128"}  # with settings hidden, and the run
HIDDEN = (
    "older setting from the last",
    "older setting from all but the question",
    "text as far back from the last",
)


def publish(runs: Path) -> None:
    """Nats, questions and right answers of every cell by book, and what was hidden."""
    found, hidden = [], []
    for model in (model for model in MODELS if (runs / model).exists()):
        for run in sorted(runs.glob(f"{model}*")):
            for cell in read_cells(run / "eval") if (run / "eval/curves.csv").exists() else []:
                own = {"nats": cell.nats.round(4), "answers": cell.answers, "right": cell.right}
                own = pd.DataFrame(own | {"document": range(len(cell.nats))}).astype(
                    {"answers": int, "right": int}
                )
                facts = {"part": cell.facts["part"], "chunk": cell.facts["train_length"]}
                method = label(cell.facts).removesuffix(":layers=all")
                found.append(own.assign(model=model, method=method, **facts))
        for method, run in ASKED.items():
            if not (runs / f"{model}{run}" / "hidden.csv").exists():
                continue
            own = pd.read_csv(runs / f"{model}{run}" / "hidden.csv")
            hidden.append(own.assign(model=model, method=method))
    keys = ["model", "method", "chunk", "part", "document"]
    rows = pd.concat(found).set_index(keys).sort_index().reset_index()
    rows.to_csv(ROWS / "pretrained.csv.xz", index=False)
    if hidden:
        pd.concat(hidden).to_csv(ROWS / "hidden.csv.xz", index=False)


@cache
def pairs() -> list[str]:
    """The part of each pair: tokens back to the last setting, and from there to the older one."""
    place = revised.places(LENGTH)
    return [f"{LENGTH - place[last]}-{place[last] - place[older]}" for older, last in revised.PAIRS]


@cache
def kinds(method: str, trained: int) -> list[str]:
    """What the map of a method does to each pair, for a model with L = `trained`."""
    if method in ("none", "yarn:2"):
        return [KINDS[1]] * len(revised.PAIRS)
    dims = posenc_jax.Dims(heads=1, head_dim=32, width=32, train_length=trained)
    rope = posenc_jax.extend(method, posenc_jax.build("rope", dims), LENGTH / trained)
    asked, place = distance.table(rope, LENGTH)[LENGTH - 1], revised.places(LENGTH)
    return [KINDS[int(np.sign(asked[place[a]] - asked[place[b]]))] for a, b in revised.PAIRS]


@cache
def rows() -> pd.DataFrame:
    """Rows of the five pairs, with what the map does to each; `target` is the value scored."""
    found = pd.read_csv(ROWS / "pretrained.csv.xz")
    split = found.part.str.extract(r"^(?:(older|absent)-)?(\d+-\d+)$")
    found = found.assign(target=split[0].fillna("last"), pair=split[1]).dropna(subset="pair")
    kind = {
        (method, chunk, pair): kind
        for method, chunk in set(zip(found.method, found.chunk, strict=True))
        for pair, kind in zip(pairs(), kinds(method, chunk), strict=True)
    }
    keys = zip(found.method, found.chunk, found.pair, strict=True)
    return found.assign(kind=[kind[key] for key in keys])


def read() -> dict[str, str]:
    """The models that have rows."""
    return {model: name for model, name in MODELS.items() if (rows().model == model).any()}


def share(own: pd.DataFrame, less: pd.DataFrame | None = None) -> Difference:
    """Share of questions answered right, or of one less that of another, over books."""
    sums = own.groupby("document")[["right", "answers"]].sum()
    if less is None:
        return paired(sums.right.to_numpy(), 0.0 * sums.right.to_numpy(), sums.answers.to_numpy())
    other = less.groupby("document")[["right", "answers"]].sum()
    scaled = other.right * sums.answers / other.answers
    return paired(sums.right.to_numpy(), scaled.to_numpy(), sums.answers.to_numpy())


def margin(own: pd.DataFrame) -> Difference:
    """Nats per question of the older value less those of the last."""
    sums = own.groupby(["document", "target"])[["nats", "answers"]].sum().unstack()
    return paired(sums.nats["older"], sums.nats["last"], sums.answers["last"])


def plain_of(own: pd.DataFrame) -> pd.DataFrame:
    """The rows without an extension of the same pairs, as often as they are there."""
    model = rows().model == own.model.iloc[0]
    plain = rows()[model & (rows().method == "none") & (rows().target == "last")]
    counts = own.groupby("pair").chunk.nunique()
    plain = plain[plain.pair.isin(counts.index)]
    times = plain.pair.map(counts)
    return plain.assign(right=plain.right * times, answers=plain.answers * times)


def _ends(one: Difference, sign: str = "") -> str:
    return f"{one.mean:{sign}.2f} [{one.low:.2f}, {one.high:.2f}]"


def by_kind() -> Table:
    """Answers with the last value, by what the map does to a pair."""
    body = []
    for model, name in read().items():
        of_model = rows()[rows().model == model]
        for method, words in METHODS.items():
            for kind in KINDS.values():
                own = of_model[(of_model.method == method) & (of_model.kind == kind)]
                if not len(own):
                    continue
                last, absent = (own[own.target == target] for target in ("last", "absent"))
                less = "" if method == "none" else _ends(share(last, plain_of(last)), "+")
                found = share(absent).mean
                body.append(
                    [f"{name}, {words}", kind, _ends(share(last)), less, _ends(margin(own))]
                    + [f"{found:.2f}", f"{last.groupby('document').answers.sum().sum():,}"]
                )
    head = ["", "pairs", "last value", "less no extension", "margin, nats", "found", "questions"]
    return Table("", head, body)


def hidden() -> Table:
    """Answers with the last value, and what hiding changes, over books."""
    found, body = pd.read_csv(ROWS / "hidden.csv.xz"), []
    for model, name in read().items():
        for method in ASKED:
            of_kind = kinds(method, 128)
            for kind in KINDS.values():
                pair = [n for n, one in enumerate(of_kind) if one == kind]
                chosen = (found.model == model) & (found.method == method) & found.pair.isin(pair)
                own = dict([*found[chosen].groupby("hidden")])
                if own:
                    cells = [_ends(share(own[what], own["nothing"]), "+") for what in HIDDEN]
                    first = f"{name}, {METHODS[method]}, {kind}"
                    body.append([first, _ends(share(own["nothing"])), *cells])
    return Table("", ["hidden:", "nothing", *HIDDEN], body)


def distinguished() -> Table:
    """The two shares of distinguish.py by the tokens of the context, means over layers, heads and
    books; the intervals over books are within 0.02."""
    found = pd.read_csv(ROWS / "distinguish.csv.xz")
    found = found[found.context.isin(CONTEXTS) & found.method.isin(DISTINGUISHED)]
    body = []
    for share in ("nearer", "same order"):
        for (model, method), own in found.groupby(["model", "method"], sort=False):
            means = own.groupby("context")[share].mean()
            body.append([f"{share}: {MODELS[model]}, {method}", *(f"{one:.2f}" for one in means)])
    return Table("", ["context", *(f"{context:,}" for context in CONTEXTS)], body)


TABLES = {"kinds": by_kind, "hidden": hidden, "distinguish": distinguished}

if __name__ == "__main__":
    publish(Path(sys.argv[1]))
