"""python -m benchmarks.schemes [--seconds=10] [--lengths=512,2048] [--only=fox,hybrid] [--out=DIR]

Compares training steps of the default byte model under encodings that bring more than a rotation or
a bias of the distance with the same step without position: how many times as long each takes, in
turns, and temporary memory.
"""

import argparse
from pathlib import Path

from posenc_jax.runtime import backend

backend.configure(keep_programs=False)


from benchmarks.results import Result, record  # noqa: E402
from benchmarks.timing import in_turns, machine, ratio, table  # noqa: E402
from benchmarks.train_step import ours  # noqa: E402

TOKENS = 4096  # in a step
BASE = "nope"
WINDOW = {"window": 128}  # at every length, so that a step's local layers grow with T alone
CASES = {  # name -> recipe, fields of its encoding
    BASE: ("nope", {}),
    "rope": ("rope", {}),
    "rope, imaginary": ("rope", {"imaginary": True}),
    "pope": ("pope", {}),
    "fope": ("fope", {}),
    "alibi": ("alibi", {}),
    "t5": ("t5", {}),
    "fire": ("fire", {}),
    "hybrid, all local": ("hybrid", WINDOW | {"pattern": "local"}),
    "hybrid, every second local": ("hybrid", WINDOW | {"pattern": "local,global"}),
    "hybrid_nope": ("hybrid_nope", WINDOW),
    "hybrid_bases": ("hybrid_bases", WINDOW),
    "hybrid, chunked": ("hybrid", WINDOW | {"chunked": True}),
    "hybrid, three of four decay": ("hybrid", {"pattern": "decay,decay,decay,global"}),
    "ssmax": ("ssmax", {}),
    "ssmax, llama4": ("ssmax", {"kind": "llama4"}),
    "prope": ("prope", {}),
    "rope_trained": ("rope_trained", {}),
    "nope, sink": ("nope", {"sink": True}),
    "rope, sink": ("rope", {"sink": True}),
    "rope, sink of tokens": ("rope", {"sink": "token"}),
    "fox": ("fox", {}),
    "fox around rope": ("fox", {"inner": "rope"}),
    "fox, bias_only": ("fox", {"gate": "bias_only"}),
    "fox, fixed": ("fox", {"gate": "fixed"}),
    "relative": ("relative", {}),
    "dape": ("dape", {}),
    "dape around rope": ("dape", {"inner": "rope"}),
    "cope": ("cope", {}),
    "stick_breaking": ("stick_breaking", {}),
    "selective_rope": ("selective_rope", {}),
    "selective_rope, random": ("selective_rope", {"steps": "random"}),
    "retention": ("retention", {}),
    "retention, not rotated": ("retention", {"rotate": False}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10, help="per encoding and length")
    parser.add_argument("--lengths", default="512,2048")
    parser.add_argument("--only", default="", help="encodings whose names contain one of these")
    parser.add_argument("--out", type=Path, help="the folder that keeps this machine's ratios")
    options = parser.parse_args()
    words = options.only.split(",")
    names = [name for name in CASES if name == BASE or any(word in name for word in words)]
    lengths = [int(length) for length in options.lengths.split(",")]
    found, results = {}, []
    print(f"{machine()}\nfloat32; time of a step over that of {BASE}, MiB of temporary memory\n")
    for length in lengths:
        made = {}
        for name in names:
            recipe, fields = CASES[name]
            made[name] = ours(recipe, length, TOKENS // length, **fields)
        calls = {name: call for name, (call, _) in made.items()}
        times = in_turns(calls, options.seconds * len(calls))
        for name in names:
            longer = ratio(times, BASE, name)
            results.append(Result(f"{length} {name}", f"time over {BASE}", longer))
            found[name, length] = [longer, f"{made[name][1] / 2**20:,.0f}"]
            print(length, name, *found[name, length], flush=True)
    head = [f"{what} at {length:,}" for length in lengths for what in ("time", "MiB")]
    rows = [[name, *(word for n in lengths for word in found[name, n])] for name in names]
    print("\n" + table(["encoding", *head], rows))
    if options.out:
        print(f"\nwritten to {record('schemes', results, options.out)}")


if __name__ == "__main__":
    main()
