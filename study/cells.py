"""Rows of the study, and the cells of its tables."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from posenc_jax import report
from posenc_jax.evaluation.statistics import paired
from posenc_jax.report.frames import Estimate

STUDY = Path(__file__).parent


@cache
def rows_of(*sweeps: str) -> pd.DataFrame:
    """Published rows, with the sweep that they are of."""
    files = {sweep: STUDY / sweep / "rows.csv.xz" for sweep in sweeps}
    return pd.concat(report.frame(file).assign(sweep=name) for name, file in files.items())


def where(columns: str, lines: Mapping[str, tuple]) -> dict[str, dict]:
    """Selections by name, from the values of some columns."""
    return {name: dict(zip(columns.split(), line, strict=True)) for name, line in lines.items()}


def of_seeds(values: pd.Series | np.ndarray) -> Estimate:
    """A mean over seeds, whose interval is that of `half`."""
    return Estimate(float(values.mean()), None, None, np.asarray(values))


def half(one: Estimate) -> float:
    """Half of a 95% t interval over seeds, of two as well; 0 for one."""
    seeds = len(one.values)
    if seeds < 2:
        return 0.0
    return stats.t.ppf(0.975, seeds - 1) * one.values.std(ddof=1) / np.sqrt(seeds)


def short(one: Estimate, sign: str = "", of: int = 0) -> str:
    """Mean and half of a 95% t interval over seeds, in two decimals where that is above 0.005; the
    mean and the number of seeds where there are fewer than `of`."""
    seeds = len(one.values)
    if seeds < max(2, of):
        return plain(one, sign) + (f" ({seeds})" if of > 1 else "")
    digits = 2 if half(one) > 0.005 else 3
    return f"{plain(one, sign, digits)} ±{half(one):.{digits}f}"


def plain(one: Estimate, sign: str = "", digits: int = 2) -> str:
    mean = round(one.values.mean(), digits) + 0.0  # no minus before zero
    return f"{mean:{sign}.{digits}f}"


table = partial(report.table, cell=short, missing="-")


def over_documents(rows: pd.DataFrame, _: str, less: pd.DataFrame | None = None) -> Estimate:
    """Nats per token, or the difference of two over the same targets, over documents of both."""
    own = rows.groupby("document")[["nats", "targets"]].sum()
    other = 0 * own if less is None else less.groupby("document")[["nats", "targets"]].sum()
    own, other = own.align(other, join="inner", axis=0)
    found = paired(own.nats.to_numpy(), other.nats.to_numpy(), own.targets.to_numpy())
    return Estimate(found.mean, found.low, found.high, own.index.to_numpy())


def signed(one: Estimate) -> str:
    return f"{one.mean:+.3f} [{one.low:.3f}, {one.high:.3f}]"


def loss(one: Estimate) -> str:
    return f"{one.mean:.3f}"


of_documents = partial(report.table, value="nats", cell=signed, missing="", over=over_documents)
