"""The report as one run of wandb."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc_jax.evaluation.statistics import series
from posenc_jax.files import write_atomically
from posenc_jax.tracking.wandb import View, digest_of, settings_now, start


def log_report(
    config, asked: str, folder: Path, data: Mapping[str, Any], pictures: Sequence[Path]
) -> None:
    """The report as one run of the group: means over seeds by length, the ranking, the pictures.

    As with the curves of a run, other numbers are another one, and the same are not logged again.
    """
    groups = {run["id"]: run["group"] for run in data["runs"]}
    content = digest_of([asked, groups, data["curves"], data["ranking"], data["notes"]])
    path = folder / "wandb_id"
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return
    here = (settings_now(config), folder, uuid.uuid4().hex[:12], asked)
    view = View(
        lambda: start(*here, "report", "report", "report/length", "report/*"),
        required=config.wandb.required,
    )
    lines: dict[str, list[dict]] = {}
    for curve in data["curves"]:
        name = f"report/{curve['protocol']}/{groups[curve['run']]} {curve['method']}"
        lines.setdefault(name, []).append(curve)
    found: dict[int, dict[str, float]] = {}
    for name, curves in lines.items():
        for length, values in zip(*series(curves, "bpb"), strict=True):
            found.setdefault(length, {})[name] = sum(values) / len(values)
    for length, means in sorted(found.items()):
        view.log({"report/length": length} | means)
    if view.run is not None:
        view.log(_ranking(data, pictures))
    if view.finish(0, {"runs": len(data["runs"]), "notes": "; ".join(data["notes"])}):
        write_atomically(path, content)


def _ranking(data: Mapping[str, Any], pictures: Sequence[Path]) -> dict[str, Any]:
    import wandb

    columns: Any = "protocol,length,run,extension,bpb,behind,low,high,verdict".split(",")
    rows: list[Any] = [
        [protocol, length, row["group"], row["method"], row["bpb"], *row["behind"], row["verdict"]]
        for protocol, tables in data["ranking"].items()
        for length, table in tables.items()
        for row in table
    ]
    images = {f"plots/{path.stem}": wandb.Image(str(path)) for path in pictures}
    return {"ranking": wandb.Table(columns=columns, data=rows), **images}
