"""The table of the page on GPUs."""

import json
from typing import Any

from study.cells import STUDY, markdown

SHOWN = "nope rope alibi t5 kerple_log sandwich hybrid fox relative dape".split()


def kernels() -> dict[str, dict[str, Any]]:
    """Measurements of attention by `make gpu` on an H200, by encoding."""
    lines = (STUDY / "gpu" / "nvidia-h200.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    done = [one for one in records if one["key"].endswith("@1024") and one["state"] == "done"]
    return {one["key"].removeprefix("kernels/").partition("@")[0]: one for one in done}


def gpu_kernels() -> str:
    """Milliseconds of attention and its gradient, and errors of the gradient in per mille."""
    body, ways = [], ("plain", "blockwise", "cudnn")
    for name in SHOWN:
        record = kernels()[name]
        times = [record.get(f"{way}_ms") for way in ways]
        ratio = times[0] / times[2] if times[2] else None
        errors = [record.get(f"{way}_gradient_error", 0) * 1000 for way in ("plain", "cudnn")]
        cells = [f"{ms:.2f}" if ms else "-" for ms in times]
        body.append([name, *cells, *(f"{one:.1f}" if one else "-" for one in (ratio, *errors))])
    head = ["", "plain, ms", "blocks, ms", "cuDNN, ms", "plain over cuDNN"]
    return markdown([*head, "error, plain, ‰", "error, cuDNN, ‰"], body)


TABLES = {"gpu-kernels": gpu_kernels}
