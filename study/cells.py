"""Parts of the cells of tables: means with intervals, differences, and Markdown."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from posenc_jax.evaluation.statistics import paired

STUDY = Path(__file__).parent


def seeds(rows: pd.DataFrame, column: str = "accuracy") -> np.ndarray:
    """One value per seed."""
    return rows.groupby("seed")[column].mean().to_numpy()


def half_width(values: np.ndarray) -> float:
    """Half of a 95% t interval over seeds; 0 for one."""
    if len(values) < 2:
        return 0.0
    return stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))


def with_interval(values: np.ndarray) -> str:
    """Mean and half of a 95% t interval over seeds."""
    if len(values) < 2:
        return f"{values.mean():.3f}" if len(values) else "-"
    return f"{values.mean():.3f} ±{half_width(values):.3f}"


def less(own: pd.DataFrame, other: pd.DataFrame) -> Any:
    """Difference of two losses over the same targets, with an interval over documents."""
    return paired(own.nats.to_numpy(), other.nats.to_numpy(), own.targets.to_numpy())


def signed(found: Any) -> str:
    return f"{found.mean:+.3f} [{found.low:.3f}, {found.high:.3f}]"


def markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
