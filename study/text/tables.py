"""Tables of the pages on text."""

from collections.abc import Mapping
from functools import partial

from study.cells import by_seed, markdown, short

L, FAR = 128, 1024
SWEEP, STEPS, FACTORS = (f"text/rows/{name}" for name in ("sweep", "steps", "factors"))
bits = partial(by_seed, value="bpb")
LINES = {  # sweep, encoding, method, protocol
    "Sandwich": (SWEEP, "sandwich", "none", "same_token"),
    "hybrid with NoPE": (SWEEP, "hybrid_nope", "none", "same_token"),
    "T5": (SWEEP, "t5", "none", "same_token"),
    "Kerple, logarithm": (SWEEP, "kerple_log", "none", "same_token"),
    "forget gates": (SWEEP, "fox", "none", "same_token"),
    "FIRE": (SWEEP, "fire", "none", "same_token"),
    "RoPE": (SWEEP, "rope", "none", "same_token"),
    "RoPE + YaRN by 8": (SWEEP, "rope", "yarn:8", "same_token"),
    "RoPE + Self-Extend": (SWEEP, "rope", "self_extend", "same_token"),
    "ALiBi": (SWEEP, "alibi", "none", "same_token"),
    "ALiBi, cut text": (SWEEP, "alibi", "none", "nonoverlap"),
    "ALiBi, 2,400 steps": (STEPS, "alibi", "none", "same_token"),
    "ALiBi, 2,400 steps, cut text": (STEPS, "alibi", "none", "nonoverlap"),
    "T5, 2,400 steps": (STEPS, "t5", "none", "same_token"),
    "RoPE, 2,400 steps": (STEPS, "rope", "none", "same_token"),
    "RoPE + Self-Extend, 2,400 steps": (STEPS, "rope", "self_extend", "same_token"),
}
CHANGED = {
    "NoPE, a first token": ("nope", "bos"),
    "T5, a first token": ("t5", "bos"),
    "Kerple, logarithm, a first token": ("kerple_log", "bos"),
    "T5, biases per layer": ("t5", "per_layer"),
    "Kerple, logarithm, biases per layer": ("kerple_log", "per_layer"),
}


def losses(lines: Mapping[str, tuple[str, str, str, str]]) -> str:
    """Bits per byte at L and 8 L, and their differences."""
    body = []
    for name, (sweep, encoding, method, protocol) in lines.items():
        place = dict(sweep=sweep, run=f"{encoding}-.*", protocol=protocol)
        near = bits(**place, method="none" if method == "self_extend" else method, length=L)
        far, window = (bits(**place, method=m, length=FAR) for m in (method, "window"))
        body.append([name, short(near), short(far), short(far - near, "+")])
        body[-1].append(short(far - window, "+"))
    head = ["bits per byte", "at L", "at 8 L", "8 L less L", "8 L less its window of L"]
    return markdown(head, body)


def factors() -> str:
    """What a factor changes, of the same seeds."""
    body = []
    for name, (encoding, factor) in CHANGED.items():
        own = partial(bits, FACTORS, f"{encoding}-.*{factor}=True", protocol="same_token")
        without = partial(bits, SWEEP, f"{encoding}-s[012]-.*", protocol="same_token")
        places = [("none", L), ("none", FAR), ("window", FAR)]
        body.append([name, *(short(own(*one) - without(*one), "+") for one in places)])
        kept = own("lm_infinite:first=1", FAR)
        body[-1].append(short(kept - own("none", L), "+") if len(kept) else "-")
    head = ["bits per byte, with less without", "at L", "at 8 L", "in a window of L"]
    return markdown([*head, "in a window that keeps the first token, less at L"], body)


TEXT, OF_FACTORS = {"text": partial(losses, LINES)}, {"factors": factors}
