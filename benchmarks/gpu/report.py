"""python -m benchmarks.gpu.report FILE [--into=docs/performance.md]

Prints tables of what `make gpu` measured, or writes them into a document between its two marks.
"""

import argparse
from pathlib import Path

from benchmarks.gpu.records import DONE, FAILED, Records
from benchmarks.timing import table

BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"
TITLES = {  # part: (heading, meaning of its columns)
    "kernels": (
        "Attention in bfloat16 against plain attention in float32",
        "Errors: the largest of the output over its largest entry; the largest relative norm of a "
        "gradient's error. `auto` takes what stands under taken.",
    ),
    "steps": ("Steps of training", "bfloat16; over_jax_nn: how many times a textbook decoder."),
    "lengths": ("Length", "The same tokens at a time at every length; read: losses alone."),
    "seeds": ("Several seeds in one program", ""),
    "determinism": ("The same run twice", "20 steps; same: the digests of all numbers agree."),
    "starts": ("Starts", "Seconds from the command to the end of three steps."),
}
NOTHING = "Nothing has been measured on a GPU yet."
LONG = {"digest": 12}  # characters shown of a column


def write(records: Records, path: Path) -> None:
    path.write_text(render(records) + "\n", encoding="utf-8")


def render(records: Records) -> str:
    ended = records.ended()
    machine = ended.pop("machine/device", {})
    facts = {k: v for k, v in machine.items() if k not in ("key", "state", "time") and v}
    lines = [", ".join(f"{name} {value}" for name, value in facts.items())]
    for part, (title, note) in TITLES.items():
        own = {k.partition("/")[2]: r for k, r in ended.items() if k.startswith(f"{part}/")}
        done = {what: record for what, record in own.items() if record["state"] == DONE}
        if own:
            lines += ["", f"### {title}", *(["", note] if note else [])]
        for columns, rows in alike(done):
            lines += ["", table(["", *columns], rows)]
        for what, record in own.items():
            if record["state"] == FAILED:
                last = record["error"].strip().splitlines()[-1]
                lines += ["", f"**{what} failed**: `{last[:300]}`"]
    return "\n".join(lines)


def alike(done: dict[str, dict]) -> list[tuple[list[str], list[list[str]]]]:
    """Make one table, with all columns, of records whose first value has the same name."""
    kinds: dict[str, dict[str, dict]] = {}
    for what, record in done.items():
        values = {k: v for k, v in record.items() if k not in ("key", "state", "time")}
        kinds.setdefault(next(iter(values)), {})[what] = values
    tables = []
    for records in kinds.values():
        columns = list(dict.fromkeys(name for values in records.values() for name in values))
        rows = [
            [what, *(shown(name, values.get(name)) for name in columns)]
            for what, values in records.items()
        ]
        tables.append((columns, rows))
    return tables


def shown(name: str, value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "mfu":
        return f"{value:.1%}"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value).replace("\n", " ").replace("|", "/")[: LONG.get(name, 120)]


def include(text: str, document: str) -> str:
    """Put the text between the marks of a document."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the document has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="gpu.jsonl of `make gpu`")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    text = render(Records(options.file))
    if options.into is None:
        print(text)
    else:
        document = options.into.read_text(encoding="utf-8")
        options.into.write_text(include(text, document), encoding="utf-8")


if __name__ == "__main__":
    main()
