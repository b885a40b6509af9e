"""Parts of the cells of tables: means with intervals, differences, and Markdown."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from posenc_jax.evaluation import cells
from posenc_jax.evaluation.statistics import paired

STUDY = Path(__file__).parent


def seeds(rows: pd.DataFrame, column: str = "accuracy") -> np.ndarray:
    """One value per seed."""
    return rows.groupby("seed")[column].mean().to_numpy()


def half(values: np.ndarray) -> float:
    """Half of a 95% t interval over seeds; 0 for one."""
    if len(values) < 2:
        return 0.0
    return stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))


def short(values: np.ndarray, sign: str = "", of: int = 0) -> str:
    """Mean and half of a 95% t interval over seeds, in two decimals where that is above 0.005; the
    mean and the number of seeds where there are fewer than `of`."""
    if len(values) < max(2, of):
        number = f" ({len(values)})" if of > 1 else ""
        return f"{round(values.mean(), 2) + 0.0:{sign}.2f}{number}" if len(values) else "-"
    digits = 2 if half(values) > 0.005 else 3
    mean = round(values.mean(), digits) + 0.0  # no minus before zero
    return f"{mean:{sign}.{digits}f} ±{half(values):.{digits}f}"


@cache
def published(sweep: str) -> pd.DataFrame:
    """Rows of a sweep with their methods, without oracles."""
    rows = pd.read_csv(STUDY / sweep / "rows.csv.xz", low_memory=False)
    facts = rows[["extension", "scale", "window"]].astype(object)
    facts = facts.where(facts.notna(), None).to_dict("records")
    parts = rows.part.astype(object).fillna("")
    rows = rows.assign(method=[cells.label(one) for one in facts], part=parts)
    return rows[rows.train_length == rows.train_length.min()]


def by_seed(
    sweep: str, run: str, method: str, length: int, protocol: str, value: str, part: str = ""
) -> np.ndarray:
    """A value of each seed, of the runs whose names match a pattern."""
    rows = published(sweep)
    chosen = rows.run.str.fullmatch(run) & (rows.method == method) & (rows.protocol == protocol)
    return seeds(rows[chosen & (rows.length == length) & (rows.part == part)], value)


def less(own: pd.DataFrame, other: pd.DataFrame) -> Any:
    """Difference of two losses over the same targets, with an interval over documents."""
    return paired(own.nats.to_numpy(), other.nats.to_numpy(), own.targets.to_numpy())


def signed(found: Any) -> str:
    return f"{found.mean:+.3f} [{found.low:.3f}, {found.high:.3f}]"


def markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
