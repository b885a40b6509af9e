"""Tables of the page on positions that depend on content."""

import numpy as np
import pandas as pd

from study.cells import STUDY, markdown, seeds, short

L, FAR = 64, 512


def accuracy(rows: pd.DataFrame, protocol: str, length: int = FAR) -> np.ndarray:
    """Accuracy of each seed; of `latest` over all separations."""
    rows = rows[(rows.protocol == protocol) & (rows.length == length)]
    return seeds(rows[rows.part.isna() | (rows.part == "all")])


def recall() -> str:
    """Reach and the last of two settings under two laws of distances, the best of the latter under
    the first law first."""
    logarithmic, uniform = (
        pd.read_csv(STUDY / "content/rows" / sweep / "rows.csv.xz", low_memory=False)
        for sweep in ("sweep", "uniform")
    )
    body = []
    for name in logarithmic.encoding.unique():
        own, even = (
            rows[(rows.encoding == name) & (rows.method == "none")]
            for rows in (logarithmic, uniform)
        )
        last = accuracy(own, "latest")
        cells = [accuracy(own, "latest", L), accuracy(own, "reach"), last]
        cells += [accuracy(even, "reach"), accuracy(even, "latest")]
        line = [name, *map(short, cells)]
        line.insert(4, f"{last.min():.3f} to {last.max():.3f}")
        body.append((last.mean(), line))
    windows = [rows[rows.method == "window"] for rows in (logarithmic, uniform)]
    means = [f"{accuracy(own, one).mean():.3f}" for own in windows for one in ("reach", "latest")]
    head = ["", "last of two at L", "reach at 8 L", "last of two at 8 L", "its seeds"]
    lines = [line for _, line in sorted(body, reverse=True)]
    lines.append(["windows of L (mean)", "", *means[:2], "", *means[2:]])
    lines.append(["a reader without order", "0.500", "1.000", "0.500", "", "1.000", "0.500"])
    return markdown([*head, "uniform: reach at 8 L", "uniform: last of two at 8 L"], lines)


def text() -> str:
    """Bits per byte on source code at L and at 8 L, beside three of the page on text."""
    files = (STUDY / one / "rows.csv.xz" for one in ("content/rows/text", "text/rows/sweep"))
    own, others = (pd.read_csv(file, low_memory=False) for file in files)
    rows = pd.concat([own, others[others.encoding.isin(["rope", "fire", "fox"])]])
    rows = rows[(rows.protocol == "same_token") & (rows.extension == "none") & rows.window.isna()]
    body = []
    for name, found in rows.groupby("encoding"):
        near, far = (seeds(found[found.length == length], "bpb") for length in (128, 1_024))
        body.append(((far - near).mean(), [name, *map(short, (near, far, far - near))]))
    head = ["", "128", "1,024", "1,024 less 128"]
    return markdown(head, [line for _, line in sorted(body)])


TABLES = {"content": recall, "content-text": text}
