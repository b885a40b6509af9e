"""python -m benchmarks.prepare [--megabytes=20] [--tokenizer=FILE] [--rounds=3]

Text through a BPE onto the disk, by ours, by `tokenizers.encode_batch` and by `datasets.map` with a
process per core: speed and peak memory, as many documents and as a single one. Each is a process of
its own, in turns; the text is the standard library's source.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.timing import machine, ratio, table
from posenc_jax.data import tokenizer
from posenc_jax.data.prepare import prepare
from posenc_jax.data.sources import stdlib

CORES = len(os.sched_getaffinity(0))


def ours(folder: Path, file: str, scratch: Path) -> None:
    from posenc_jax.data.sources.jsonl import JsonLines

    source = JsonLines(
        tokenizer=str(folder / "bpe.json"),
        valid_fraction=0.0,
        cache=str(scratch),
        path=str(folder / file),
    )
    prepare(source, 0, quiet=True)


def encode_batch(folder: Path, file: str, scratch: Path) -> None:
    import tokenizers

    learned = tokenizers.Tokenizer.from_file(str(folder / "bpe.json"))
    texts = [json.loads(line)["text"] for line in (folder / file).open(encoding="utf-8")]
    found = learned.encode_batch(texts, add_special_tokens=False)
    np.save(scratch / "tokens.npy", np.concatenate([np.array(one.ids, np.uint16) for one in found]))


def datasets_map(folder: Path, file: str, scratch: Path) -> None:
    import datasets
    import tokenizers

    datasets.disable_progress_bars()
    learned = tokenizers.Tokenizer.from_file(str(folder / "bpe.json"))

    def encode(rows):
        found = learned.encode_batch(rows["text"], add_special_tokens=False)
        return {"ids": [one.ids for one in found]}

    rows = datasets.load_dataset(
        "json", data_files=str(folder / file), split="train", cache_dir=str(scratch)
    )
    rows.map(encode, batched=True, batch_size=100, num_proc=CORES, remove_columns=rows.column_names)


PEERS: dict[str, Callable[[Path, str, Path], None]] = {
    "ours": ours,
    "encode_batch": encode_batch,
    "datasets.map": datasets_map,
}


def write_texts(folder: Path, size: int, encoder: str | None) -> None:
    """The same text as many documents and as one, and a tokenizer."""
    texts, total = [], 0
    files = stdlib.stdlib_files()
    while total < size:
        for path in files:
            texts.append(path.read_text(encoding="utf-8", errors="replace")[: size - total])
            total += len(texts[-1])
    rows = [json.dumps({"text": text, "id": i}) for i, text in enumerate(filter(None, texts))]
    (folder / "many.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "one.jsonl").write_text(json.dumps({"text": "".join(texts)}), encoding="utf-8")
    if encoder:
        learned = tokenizer.Learned(Path(encoder)).tokenizer
    else:
        learned = tokenizer.train_bpe(["".join(texts)[: 2 << 20]], 4_096)
    learned.save(str(folder / "bpe.json"))


def measure(name: str, folder: Path, file: str) -> tuple[float, float]:
    """Seconds and peak MiB of a process and of its largest child."""
    command = [sys.executable, "-m", "benchmarks.prepare", f"--only={name}"]
    command += [f"--folder={folder}", f"--file={file}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def only(name: str, folder: Path, file: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        PEERS[name](folder, file, Path(scratch))
        seconds = time.perf_counter() - begin
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    own, child = (resource.getrusage(one).ru_maxrss / 2**10 for one in who)
    print(json.dumps([seconds, own + CORES * child]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--tokenizer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PEERS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--file")
    options = parser.parse_args()
    if options.only:
        return only(options.only, options.folder, options.file)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_texts(folder, int(options.megabytes * 1e6), options.tokenizer)
        for file in ("many.jsonl", "one.jsonl"):
            found = {name: [] for name in PEERS}
            for _ in range(options.rounds):
                for name in PEERS:
                    found[name].append(measure(name, folder, file))
            times = {name: np.array([s for s, _ in one]) for name, one in found.items()}
            for name, one in found.items():
                speed = options.megabytes / float(np.median(times[name]))
                memory = max(memory for _, memory in one)
                faster = "1" if name == "ours" else ratio(times, "ours", name)
                rows.append([file, name, f"{speed:.2f}", f"{memory:,.0f}", faster])
    print(machine())
    head = ["text", "by", "MB/s", "peak MiB", "ours is faster by (middle half)"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
