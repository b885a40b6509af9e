"""Tables of the pages on retrieval."""

import numpy as np

from study.cells import by_seed, markdown, short

FAR = 512
SWEEP, SHIPPED = "retrieval/rows/sweep", "retrieval/rows/shipped"
DESIGNS = {  # where their rows are, the names of their runs, and the reader without order
    "one rate": (SWEEP, r"variables-{}-s\d", 0.821),
    "tuned": ("retrieval/rows/rates", r"variables-{}-.*", 0.821),
    "near": ("retrieval/rows/laws", r"variables-{}-gaps=log-s\d", 0.569),
    "set once": ("retrieval/rows/laws", r"variables-{}-variant=once-s\d", 1.0),
}
LINES = {
    "RoPE": ("rope", "none"),
    "RoPE in a window of L": ("rope", "window"),
    "RoPE + YaRN by 8": ("rope", "yarn:8"),
    "RoPE + Self-Extend": ("rope", "self_extend"),
    "RoPE + interpolation by 8": ("rope", "pi:8"),
    "randomised positions": ("randomized", "none"),
    "FIRE": ("fire", "none"),
    "NoPE": ("nope", "none"),
    "T5": ("t5", "none"),
    "Sandwich": ("sandwich", "none"),
    "ALiBi": ("alibi", "none"),
    "Kerple, logarithm": ("kerple_log", "none"),
    "Kerple, logarithm + log-n": ("kerple_log", "logn"),
    "forget gates": ("fox", "none"),
}
ADDED = {
    "nothing: RoPE": (SWEEP, "rope-s."),
    "rotation of 3/4 of the pairs (p-RoPE)": (SHIPPED, "prope-s."),
    "rotation of the pairs that turn within L": (SHIPPED, "prope-s.-keep=turned"),
    "trained frequencies": (SHIPPED, "rope_trained-s."),
    "a trained sink": (SHIPPED, "rope-s.-sink=True"),
    "a trained scale of scores (SSMax)": (SHIPPED, "ssmax-s."),
    "Ministral 3's temperature": (SHIPPED, "ssmax-s.-kind=ministral3"),
    "forget gates": (SHIPPED, "fox-s.-inner=rope"),
    "chunks of 32, then no position (Llama 4)": (SHIPPED, "ssmax-s.-.*llama4.*"),
    "a window of 32, then no position": (SHIPPED, "hybrid_nope-s.-pattern=local_global-window=32"),
    "a window of 16, then RoPE of base 10^6": (SHIPPED, "hybrid_bases-s.-pattern=local_global"),
}


def accuracy(sweep: str, run: str, method: str, part: str = "") -> np.ndarray:
    return by_seed(sweep, run, method, FAR, "gap" if part else "answers", "accuracy", part)


def retrieval() -> str:
    """Accuracy at 8 L under four designs."""
    body = [["a reader without order", *(f"{reader:.2f}" for *_, reader in DESIGNS.values())]]
    for name, (encoding, method) in LINES.items():
        places = ((sweep, run.format(encoding)) for sweep, run, _ in DESIGNS.values())
        body.append([name, *(short(accuracy(*place, method)) for place in places)])
    return markdown(["", *DESIGNS], body)


def shipped() -> str:
    """Accuracy at 8 L, of values within L too, of what shipped models add to RoPE."""
    body = []
    for name, (sweep, run) in ADDED.items():
        place = (sweep, f"variables-{run}")
        found = [accuracy(*place, "none", "33-64")]
        found += [accuracy(*place, method) for method in ("none", "yarn:8", "self_extend")]
        body.append([name, *map(short, found)])
    return markdown(["", "set 33 to 64 back", "all", "all, YaRN by 8", "all, Self-Extend"], body)


RETRIEVAL, ADDITIONS = {"retrieval": retrieval}, {"shipped": shipped}
