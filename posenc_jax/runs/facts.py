"""Facts about a run that other programs read from status.json."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from posenc_jax.terminal import counted

if TYPE_CHECKING:
    from posenc_jax.data.corpora import Corpus

# Facts about the whole run, independent of its state.
KEPT = ("command", "data", "machine", "parameters", "skipped", "speed")


def data_facts(corpus: "Corpus") -> dict[str, Any]:
    splits = corpus.card["splits"]
    train = splits["train"]
    return {
        "fingerprint": corpus.fingerprint,
        "documents": train["documents"],
        "tokens": train["tokens"],
        "bytes_per_token": train["bytes_per_token"],
        "held_out": splits["valid"]["documents"],
    }


def data_in_words(data: Mapping[str, Any]) -> str:
    """Describe a run's training data in one line; empty if its status has none."""
    if not data:
        return ""
    return (
        f"{data['fingerprint'][:16]}: {counted(data['documents'], 'document')}, "
        f"{counted(data['tokens'], 'token')} to train on, "
        f"{round(data['bytes_per_token'], 3)} bytes each"
    )


def speed(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the median tokens per second of lines of metrics, except the first (compilation)."""
    speeds = [line["tokens_per_second"] for line in lines if line.get("tokens_per_second")]
    return float(median(speeds[1:] or speeds)) if speeds else None
