"""Tables of the page on GPUs."""

import json
from typing import Any

from study.cells import STUDY, markdown


def on_gpu(part: str) -> dict[str, dict[str, Any]]:
    """Measurements of `make gpu` on an H200, by their names."""
    lines = (STUDY / "gpu" / "nvidia-h200.jsonl").read_text(encoding="utf-8").splitlines()
    records = {record["key"].partition("/"): record for record in map(json.loads, lines)}
    return {name: r for (of, _, name), r in records.items() if of == part and r["state"] == "done"}


def gpu_kernels() -> str:
    """Milliseconds of attention and its gradient, and errors of the gradient in per mille."""
    body = []
    for name, record in on_gpu("kernels").items():
        plain, kernel = record["plain_ms"], record.get("cudnn_ms")
        times = [record.get(f"{way}_ms") for way in ("plain", "blockwise", "cudnn")]
        errors = [record.get(f"{way}_gradient_error") for way in ("plain", "blockwise", "cudnn")]
        cells = [f"{ms:.2f}" if ms else "" for ms in times]
        cells += [f"{plain / kernel:.1f}" if kernel else ""]
        cells += [f"{1000 * error:.1f}" if error else "" for error in errors]
        body.append([name.partition("@")[0], *cells])
    ways = "plain", "by blocks", "cuDNN"
    head = ["", *(f"{way}, ms" for way in ways), "plain over cuDNN"]
    return markdown([*head, *(f"{way}, error in ‰" for way in ways)], body)


def gpu_steps() -> str:
    """Tokens per second of a training step, in several processes."""
    body = []
    for name, record in on_gpu("steps").items():
        if "mfu" in record:
            size, alone = f"{record['parameters'] / 1e6:.1f}M", f"{record['tokens_per_s']:,.0f}"
            beside = [f"{rate:,}" for rate in record["tokens_per_s_beside_others"]]
            beside += [""] * (2 - len(beside))
            body.append([name, size, str(record["rows"]), alone, *beside])
    head = ["", "parameters", "rows", "alone", "beside 14 processes", "beside 10"]
    return markdown(head, body)


TABLES = {"gpu-kernels": gpu_kernels, "gpu-steps": gpu_steps}
