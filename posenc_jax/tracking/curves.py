"""Log the curves of a run to wandb, with length on the horizontal axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc_jax.errors import DONE
from posenc_jax.evaluation import protocols, records
from posenc_jax.evaluation.records import Measured
from posenc_jax.evaluation.table import label
from posenc_jax.files import write_atomically
from posenc_jax.tracking.wandb import (
    Handover,
    View,
    define,
    digest_of,
    identity_of,
    settings_now,
    start,
)


def log_evaluation(
    config,
    mode: str,
    workdir: Path,
    cells: Sequence[Measured],
    pictures: Sequence[Path],
    facts: Mapping[str, Any],
) -> None:
    """Log the curves as one run in the training run's group.

    wandb cannot change a logged point, so new curves become a new run; the same curves are not
    logged again.
    """
    rows = records.rows(cells)
    identity = digest_of(rows)
    path = workdir / "eval" / "wandb_id"
    if path.exists() and path.read_text(encoding="utf-8") == identity:
        return
    view = View(
        lambda: start_evaluation(config, workdir, identity, mode, facts=facts),
        required=config.wandb.required,
    )
    if log_curves(view, rows, pictures):
        write_atomically(path, identity)


def log_with_training(
    config,
    workdir: Path,
    cells: Sequence[Measured],
    pictures: Sequence[Path],
    facts: Mapping[str, Any],
    handover: Handover,
) -> None:
    """Log the curves in the wandb run of the training, where wandb's sweeps read their numbers.

    The first curves logged there stay. Later curves become a run of their own and update the
    summary of the training.
    """
    rows = records.rows(cells)
    identity, content = identity_of(workdir), digest_of(rows)
    path = workdir / "eval" / "wandb_with_training"
    shown = path.read_text(encoding="utf-8").split() if path.exists() else []
    if shown == [identity, content]:
        return
    view = View(
        lambda: _prepared(handover.take(config, workdir), facts), required=config.wandb.required
    )
    first = identity not in shown
    if first:
        _show(view, rows, pictures)
    if view.finish(DONE, {"exit_code": DONE} | _summary(rows)):
        write_atomically(path, f"{identity} {content}")
        if first:
            write_atomically(workdir / "eval" / "wandb_id", content)
    if not first:
        log_evaluation(config, config.wandb.mode, workdir, cells, pictures, facts)


def _prepared(run: Any, facts: Mapping[str, Any]) -> Any:
    """Prepare the wandb run of a training for curves."""
    if run is None:
        return None
    define(run, "extrap/*", step_metric="eval/length")
    _hide_axes(run)
    subject = {name: facts[name] for name in ("step", "data_fingerprint")}
    run.config.update({"evaluation": facts["evaluation"] | subject}, allow_val_change=True)
    return run


def log_curves(view: View, rows: Sequence[dict], pictures: Sequence[Path]) -> bool:
    """Log curves into a wandb run of their own and finish it; return True on success."""
    _show(view, rows, pictures)
    return view.finish(DONE, _summary(rows))


def _newest(rows: Sequence[dict]) -> list[dict]:
    """Rows of the last checkpoint."""
    last = max(row["step"] for row in rows)
    return [row for row in rows if row["step"] == last]


def _show(view: View, rows: Sequence[dict], pictures: Sequence[Path]) -> None:
    """Log bits per byte at every length as extrap/<protocol>/<extension>, perplexity as /ppl (a
    part of a protocol after its name), and all methods of a protocol in one panel."""
    newest = _newest(rows)
    for length in sorted({row["length"] for row in newest}):
        multiple = length / newest[0]["train_length"]
        values: dict[str, Any] = {"eval/length": length, "eval/multiple": multiple}
        for row in (r for r in newest if r["length"] == length and r["nll"] is not None):
            name = f"{_panel(row)}/{label(row)}"
            values |= {f"{name}/ppl": row["ppl"]}
            if row["bpb"] is None:
                continue
            values |= {name: row["bpb"]}
        view.log(values)
    if view.run is not None:
        view.log(_media(rows, pictures) | _methods(newest))


def _summary(rows: Sequence[dict]) -> dict[str, float]:
    """Bits per byte as extrap/<protocol>/<extension>@<multiple>x; names omit the largest scale."""
    newest, summary = _newest(rows), {}
    for row in newest:
        if row["nll"] is None or row["bpb"] is None:
            continue
        largest = max(r["scale"] or 0 for r in newest if r["extension"] == row["extension"])
        short = (row["scale"] or 0) == largest and not row["window"]
        extension = row["extension"] if short else label(row)
        multiple = f"{row['length'] / row['train_length']:g}x"
        summary[f"{_panel(row)}/{extension}@{multiple}"] = row["bpb"]
    return summary


def _panel(row: Mapping[str, Any]) -> str:
    """extrap/<protocol>, or extrap/<protocol>/<part> of a protocol that scores parts."""
    part = f"/{row['part']}" if row["part"] else ""
    return f"extrap/{row['protocol']}{part}"


def _media(rows: Sequence[dict], pictures: Sequence[Path]) -> dict[str, Any]:
    import wandb

    data: list[Any] = [[row[name] for name in records.COLUMNS] for row in rows]
    table = wandb.Table(columns=list(records.COLUMNS), data=data, allow_mixed_types=True)
    images = {f"plots/{path.stem}": wandb.Image(str(path)) for path in pictures}
    return {"eval/curves": table, **images}


def _methods(rows: Sequence[dict]) -> dict[str, Any]:
    """One panel per protocol with all methods of this run."""
    import wandb

    panels = {}
    for protocol in protocols.against_length():
        lines: dict[str, list[tuple[int, float]]] = {}
        chosen = [row for row in rows if row["protocol"] == protocol and row["nll"] is not None]
        field = "bpb" if all(row["bpb"] is not None for row in chosen) else "nll"
        for row in sorted(chosen, key=lambda row: row["length"]):
            lines.setdefault(label(row), []).append((row["length"], row[field]))
        if lines:
            panels[f"methods/{protocol}"] = wandb.plot.line_series(
                xs=[[x for x, _ in line] for line in lines.values()],
                ys=[[y for _, y in line] for line in lines.values()],
                keys=list(lines),
                title=f"{protocol}, {'bits per byte' if field == 'bpb' else 'nats per token'}",
                xname="length",
            )
    return panels


def start_evaluation(
    config, workdir: Path, identity: str, mode: str = "", facts: Mapping[str, Any] | None = None
) -> Any:
    config = settings_now(config)
    name = f"{config.wandb.name or workdir.resolve().name}-eval"
    here = (config, workdir / "eval", identity, mode, "eval", name, "eval/length", "extrap/*")
    run = start(*here, facts)
    _hide_axes(run)
    return run


def _hide_axes(run: Any) -> None:
    for axis in ("eval/length", "eval/multiple"):
        define(run, axis, hidden=True)
