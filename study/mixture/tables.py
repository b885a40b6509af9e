"""The table of the page on a mixture."""

from study.cells import markdown, published

LINES = {
    "RoPE in a window of L": ("rope", "window"),
    "RoPE + Self-Extend": ("rope", "self_extend"),
    "RoPE + YaRN by 8": ("rope", "yarn:8"),
    "RoPE + interpolation by 8": ("rope", "pi:8"),
    "RoPE + NTK by 8": ("rope", "ntk:8"),
    "RoPE": ("rope", "none"),
    "ALiBi in a window of L": ("alibi", "window"),
    "ALiBi": ("alibi", "none"),
    "FIRE in a window of L": ("fire", "window"),
    "FIRE": ("fire", "none"),
}
COLUMNS = {  # protocol, length, value
    "text at L": ("same_token", 64, "bpb"),
    "text at 8 L": ("same_token", 512, "bpb"),
    "answers at 8 L": ("answers", 512, "accuracy"),
}
KEYS = ["encoding", "method", "protocol", "length"]


def mixture() -> str:
    """Bits per byte of text and accuracy of answers, means of two seeds."""
    rows, body = published("mixture/rows/sweep"), []
    means = rows[rows.evaluation != "order"].groupby(KEYS)[["bpb", "accuracy"]].mean()
    for name, line in LINES.items():
        cells = (means.loc[(*line, *place), value] for *place, value in COLUMNS.values())
        body.append([name, *(f"{cell:.2f}" for cell in cells)])
    return markdown(["", *COLUMNS], body)


TABLES = {"mixture": mixture}
