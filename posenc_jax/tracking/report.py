"""The report as one run of wandb."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from posenc_jax.files import write_atomically
from posenc_jax.tracking.wandb import View, digest_of, settings_now, start

COLUMNS: Any = "protocol,length,run,extension,loss,behind,low,high,verdict".split(",")


class Numbers(NamedTuple):
    """The numbers of a report."""

    points: pd.DataFrame  # a row per run, method, protocol and length
    ranking: list[Any]  # rows with these COLUMNS
    runs: int
    notes: Sequence[str]


def log_report(config, mode: str, folder: Path, data: Numbers, pictures: Sequence[Path]) -> None:
    """Log means over seeds by length, the ranking and the pictures as one wandb run of the group.

    Unchanged numbers are not logged again; changed ones make a new wandb run.
    """
    points = data.points.to_csv(index=False)
    content = digest_of([mode, points, data.ranking, data.notes])
    path = folder / "wandb_id"
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return
    arguments = (settings_now(config), folder, uuid.uuid4().hex[:12], mode)
    view = View(
        lambda: start(*arguments, "report", "report", "report/length", "report/*"),
        required=config.wandb.required,
    )
    means = data.points.groupby(["length", "protocol", "group", "method"]).bpb.mean(skipna=False)
    for length, values in means.dropna().groupby("length"):
        values_by_name = {
            f"report/{protocol}/{group} {method}": value
            for (_, protocol, group, method), value in values.items()
        }
        view.log({"report/length": length} | values_by_name)
    if view.run is not None:
        view.log(_ranking(data, pictures))
    if view.finish(0, {"runs": data.runs, "notes": "; ".join(data.notes)}):
        write_atomically(path, content)


def _ranking(data: Numbers, pictures: Sequence[Path]) -> dict[str, Any]:
    import wandb

    images = {f"plots/{path.stem}": wandb.Image(str(path)) for path in pictures}
    return {"ranking": wandb.Table(columns=COLUMNS, data=data.ranking), **images}
